"""`unspur-paper finetune`: train a network on data with the spurious correlation, and keep its embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np

from unspur._typing import Array
from unspur.exceptions import InputError, OutputExistsError
from unspur_paper.cli.embed import device_option, embeddings_option, precision_option, workers_option
from unspur_paper.cli.options import sizes_option
from unspur_paper.cli.program import echo_json, force_option, in_order, json_option, print_path, say, seed_option
from unspur_paper.datasets.celeba import MOUTH, CelebA
from unspur_paper.datasets.celeba import SIZES as FACES
from unspur_paper.datasets.multinli import MultiNLI
from unspur_paper.datasets.negation import CLASSES, NegatedPairs
from unspur_paper.datasets.selected import Selected, birds_at, faces_at, negated_pairs, pairs_at, unmarked_pairs
from unspur_paper.datasets.squares import Squares
from unspur_paper.datasets.waterbirds import Composites
from unspur_paper.embedding.base import NetworkEncoder, Precision
from unspur_paper.embedding.embedding import embed
from unspur_paper.embedding.examples import Examples
from unspur_paper.embedding.registry import ENCODERS, load_encoder
from unspur_paper.embedding.store import MANIFEST, REDUCTION, EmbeddingStore, Reduction, is_store, read_manifest
from unspur_paper.experiments.stores import tuned_folder
from unspur_paper.networks.finetuning import finetune
from unspur_paper.networks.maps import opacity, write_maps
from unspur_paper.networks.prepared import AT_ONCE
from unspur_paper.networks.training import Balance, Optimizer, Training, paper_training
from unspur_paper.networks.training_data import label_of
from unspur_paper.networks.tuned import CHECKPOINT, RECORD, read_record, told

#: Main label and concept of each source, and the principal components that the paper keeps.
LABELS = {"waterbirds": ("y", "background", 300), "celeba": ("y", "concept", 300), "multinli": ("y", "concept", 100)}
#: Strength of the correlation unless another is asked for.
P = 0.9


#: Options that replace the paper's settings of a training.
training_options = in_order(
    click.option("--optimizer", type=click.Choice(get_args(Optimizer)), help="How weights are moved."),
    click.option("--learning-rate", type=float, help="How far, in the first step."),
    click.option("--momentum", type=float, help="Of SGD."),
    click.option("--weight-decay", type=float, help="How much weights shrink in a step."),
    click.option("--batch", type=int, help="Examples a step."),
    click.option("--epochs", type=int, help="Times that as many examples are shown as there are to train on."),
    click.option("--patience", type=int, help="Stop after so many epochs without a lower loss; 0: never."),
    click.option(
        "--balance", type=click.Choice(get_args(Balance)), help="Label whose classes are shown equally often."
    ),
)


@click.command("finetune")
@click.argument("source", type=click.Choice(list(LABELS)))
@click.option(
    "--encoder",
    "encoder_name",
    metavar="NAME",
    required=True,
    help="A network of `unspur-paper embed --list`, owner/model of the hub, or a folder.",
)
@click.option("--root", type=click.Path(path_type=Path), required=True, help="Folder of the data.")
@click.option("--p", type=click.FloatRange(0.0, 1.0), help=f"Strength of the correlation ({P}).")
@seed_option
@sizes_option("Examples in each split (the paper's, or as near as the data allow).")
@click.option("--task", metavar="NAME", help="Main label, of celeba.")
@click.option("--concept", metavar="NAME", help="Concept, likewise.")
@click.option("--unmarked", is_flag=True, help="Train on pairs without the mark only; multinli.")
@click.option(
    "--negation",
    is_flag=True,
    help="Train on pairs as they are, of three classes; the concept is a word of negation; multinli.",
)
@click.option(
    "--adversary",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0.0),
    help="Weight of an adversary that is to find no concept.",
)
@training_options
@click.option("--pca", type=click.IntRange(0), metavar="K", help="Principal components to keep (the paper's); 0: all.")
@click.option(
    "--maps",
    default=0,
    metavar="N",
    type=click.IntRange(0),
    help="Keep feature maps of N test pictures of each group, for Grad-CAM; waterbirds and celeba.",
)
@embeddings_option
@click.option("--output", type=click.Path(path_type=Path), help="Folder of this store instead.")
@click.option(
    "--squares",
    type=click.Path(path_type=Path),
    help="Keep scaled pictures in this folder, for other networks on the same draw; waterbirds and celeba.",
)
@device_option
@precision_option
@click.option("--tuned-kernels", is_flag=True, help="Have a GPU try several kernels first; for several networks.")
@workers_option
@force_option
@json_option
def finetune_command(
    source: str,
    encoder_name: str,
    root: Path,
    p: float | None,
    seed: int,
    sizes: dict[str, int] | None,
    task: str | None,
    concept: str | None,
    unmarked: bool,
    negation: bool,
    adversary: float,
    pca: int | None,
    maps: int,
    embeddings: Path,
    output: Path | None,
    squares: Path | None,
    device: str,
    precision: Precision,
    tuned_kernels: bool,
    workers: int | None,
    force: bool,
    as_json: bool,
    **settings: Any,
) -> None:
    r"""Train a network first, and keep its embeddings.

    It is trained on SOURCE, at a strength of the correlation, and its embeddings go to a store.

    All weights are trained, by the paper's settings for that dataset unless others are given. The network itself is
    kept beside the store, and `--encoder` of other commands takes its folder.

    To resume a stopped run, run the same command again.

    Example:
      unspur-paper finetune waterbirds --root data --encoder efficientnet-lite0 \
          --p 0.9 --epochs 20
    """
    if unmarked and (source != "multinli" or adversary):
        raise click.UsageError(
            "--unmarked is for multinli only, and without an adversary: it would have no concept to find."
        )
    if negation and (source != "multinli" or unmarked or sizes is not None):
        raise click.UsageError("--negation is for all pairs of multinli, without --unmarked and --sizes.")
    if source != "celeba" and (task is not None or concept is not None):
        raise click.UsageError(f"--task and --concept are for celeba; {source} has its own.")
    if p is not None and (unmarked or negation):
        why = "with --unmarked there is none to train on" if unmarked else f"the rows of {source} are taken as they are"
        raise click.UsageError(f"--p is the strength of a correlation that is made here; {why}.")
    if maps and source not in ("waterbirds", "celeba"):
        raise click.UsageError("--maps is for waterbirds and celeba: the others have no place that is to be looked at.")
    if squares is not None and source not in ("waterbirds", "celeba"):
        raise click.UsageError("--squares is for waterbirds and celeba.")
    p = P if p is None else p
    kind = {"unmarked": unmarked, "negation": negation}
    plan = _plan(source, root, p, seed, sizes, task, concept, **kind)
    training = paper_training(source, adversary=adversary).with_settings(
        {**settings, "seed": seed, "adversary": adversary}
    )
    encoder = _network(encoder_name, device, precision, plan.trained_on)
    if squares is not None:
        plan = _in_squares(plan, encoder, squares, workers)
    # A folder is found again by its place, wherever a later command is given; its name alone goes into results.
    known_as, address = encoder_name, encoder_name
    if encoder_name not in ENCODERS and Path(encoder_name).expanduser().is_dir():
        known_as, address = encoder.name, str(Path(encoder_name).expanduser().resolve())
    folder = output or tuned_folder(embeddings, source, known_as, seed, p=p, adversary=adversary, **kind)
    kept = plan.pca if pca is None else pca
    # "." and ".." have no name that one beside them could be made of.
    network = Path(f"{folder.resolve() if folder.name in ('', '..') else folder}-network")
    _require_possible(plan, encoder, kept, folder, network, maps=bool(maps), overwrite=force)
    if not as_json:
        _announce(plan, training, encoder, source)
    folder.parent.mkdir(parents=True, exist_ok=True)
    encoder = finetune(
        plan.trained_on,
        encoder,
        network,
        training,
        main=plan.main,
        concept=plan.concept,
        base=address,
        workers=workers,
        overwrite=force,
        progress=not as_json,
        classes=plan.classes,
        tuned_kernels=tuned_kernels,
    )
    store = embed(
        plan.embedded,
        encoder,
        folder,
        pca=kept or None,
        half=True,
        batch=AT_ONCE,
        workers=workers,
        overwrite=force,
        progress=not as_json,
    )
    if maps:
        _keep_maps(plan.embedded, encoder, store, maps, workers)
    _tell(store, network, encoder.training, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a network is trained on, and what is embedded by it afterwards."""

    trained_on: Examples
    embedded: Examples
    main: str
    concept: str
    pca: int
    classes: int = 2


def _plan(
    source: str,
    root: Path,
    p: float,
    seed: int,
    sizes: dict[str, int] | None,
    main: str | None,
    concept: str | None,
    *,
    unmarked: bool,
    negation: bool,
) -> _Plan:
    if source == "multinli" and unmarked:
        trained_on, both = unmarked_pairs(MultiNLI.read(root), seed, sizes)
        return _Plan(trained_on, both, *LABELS[source])
    if source == "multinli" and negation:
        chosen = negated_pairs(NegatedPairs.read(root), seed)
        return _Plan(chosen, chosen, *LABELS[source], classes=len(CLASSES))
    if source == "multinli":
        chosen = pairs_at(MultiNLI.read(root), p, seed, sizes)
    elif source == "waterbirds":
        chosen = birds_at(Composites.draw(root, root, seed, sizes), p, seed)
    else:
        faces = CelebA.read(root)
        chosen = faces_at(faces, p, seed, main or "Blond_Hair", concept or "not Male", sizes or FACES)
    return _Plan(chosen, chosen, *LABELS[source])


def _in_squares(plan: _Plan, encoder: NetworkEncoder, folder: Path, workers: int | None) -> _Plan:
    """The same plan on pictures that were scaled before."""
    preparation = getattr(encoder, "preparation", None)
    if preparation is None:
        raise InputError(f"{encoder.name} prepares pictures in its own way, so they cannot be scaled before.")
    examples = plan.embedded
    assert isinstance(examples, Selected)
    examples = replace(examples, whole=Squares.of(examples.whole, folder, preparation.resize, workers))
    return replace(plan, trained_on=examples, embedded=examples)


def _network(name: str, device: str, precision: Precision, examples: Examples) -> NetworkEncoder:
    encoder = load_encoder(name, device=device, precision=precision, kind=examples.kind)
    if not isinstance(encoder, NetworkEncoder):
        raise InputError(
            f"{name} is no network, so there is nothing to train; see `unspur-paper embed --list` for others."
        )
    return encoder


def _require_possible(
    plan: _Plan, encoder: NetworkEncoder, components: int, folder: Path, network: Path, *, maps: bool, overwrite: bool
) -> None:
    """Whatever would be found wrong after the training is found wrong before it."""
    examples = plan.embedded
    for name in (plan.main, plan.concept):
        label_of(examples, name)  # training may need no concept; whoever uses the store does
    rows = int(np.sum(examples.labels.get("split", np.array([])) == "train"))
    if components > min(rows, encoder.width):
        raise InputError(
            f"{rows} training rows of {encoder.width} features have no {components} principal components; pass --pca "
            f"with {min(rows, encoder.width)} at most, or 0 to keep all features."
        )
    _require_folder(folder, "the store")
    _require_folder(network, "the network")
    store = is_store(folder)
    if folder.is_dir() and not store and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise OutputExistsError(f"{folder} is not an embedding store and holds other files. Name a folder of its own.")
    if store and not overwrite:
        _require_rows_of(network, folder)
    if not maps:
        return
    if not components:
        raise click.UsageError("--maps belong to principal components; leave out --pca 0.")
    if getattr(encoder, "preparation", None) is None:
        raise InputError(f"{encoder.name} prepares pictures in its own way, so masks cannot be laid over its maps.")
    encoder.where.run(encoder.feature_maps, encoder.batch([encoder.prepare(examples[0])]))  # says if it has none


def _require_folder(folder: Path, what: str) -> None:
    """A folder that is there, or one that can be made."""
    there = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not there.is_dir():
        raise OutputExistsError(f"{there} is a file; {what} needs a folder {folder}. Choose another --output.")


def _require_rows_of(network: Path, folder: Path) -> None:
    """Rows that are there already must be of the network that is; those of one yet to be trained would be others."""
    if not (network / RECORD).exists():
        begun = (network / CHECKPOINT).exists()
        go_on = f", or delete {folder} to go on with the training that was begun" if begun else ""
        raise OutputExistsError(
            f"{folder} holds embeddings, and {network} holds no finished network that they could be of; one that is "
            "trained now would not be theirs. Put back their network, choose another --output, or pass --force to "
            f"train and embed from the start{go_on}."
        )
    if not (folder / MANIFEST).exists():
        return  # rows that are begun
    record, encoder = read_record(network), read_manifest(folder).get("encoder", {})
    if encoder.get("digest") != record["digest"] or encoder.get("training") != told(record):
        raise OutputExistsError(
            f"{folder} holds embeddings of another network than the one in {network}: {encoder.get('name')} "
            f"{encoder.get('digest')} instead of {record['digest']}. Choose another --output, or pass --force."
        )


def _keep_maps(
    examples: Examples, encoder: NetworkEncoder, store: EmbeddingStore, each: int, workers: int | None
) -> None:
    """Feature maps of some test pictures of every group, and how much of them is bird or, of faces, mouth."""
    assert isinstance(examples, Selected)
    whole, preparation = examples.whole, getattr(encoder, "preparation", None)
    if isinstance(whole, Squares):
        whole = whole.whole
    assert preparation is not None

    def mask(i: int) -> Array:
        if isinstance(whole, CelebA):
            return opacity(whole.mask(MOUTH), preparation)
        assert isinstance(whole, Composites)
        return opacity(whole.mask(int(examples.members[i])), preparation)

    y, concept, split = (examples.labels[name] for name in ("y", LABELS[examples.name][1], "split"))
    rng = np.random.default_rng(0)
    chosen = np.concatenate(
        [
            rng.permutation(np.flatnonzero((split == "test") & (y == a) & (concept == b)))[:each]
            for a in (0, 1)
            for b in (0, 1)
        ]
    )
    write_maps(
        examples,
        chosen,
        encoder,
        Reduction.read(store.folder / REDUCTION),
        mask,
        store.folder,
        workers=workers,
    )


def _announce(plan: _Plan, training: Training, encoder: NetworkEncoder, source: str) -> None:
    """Sizes, and where the training departs from the paper's."""
    split = plan.trained_on.labels.get("split", np.array([]))
    sizes = ", ".join(
        f"{np.sum(split == name)} to {what}" for name, what in (("train", "train on"), ("validation", "judge by"))
    )
    say(f"{encoder.name} on {encoder.device}; {sizes}")
    if source in LABELS:
        paper = paper_training(source, adversary=training.adversary).to_dict()
        other = {k: v for k, v in training.to_dict().items() if v != paper[k] and k != "seed"}
        told = ", ".join(f"{name} {value} (paper: {paper[name]})" for name, value in other.items())
        say(f"Settings of the paper{f', but {told}' if told else ''}.")


def _tell(store: EmbeddingStore, network: Path, training: Mapping[str, Any], *, as_json: bool) -> None:
    history, kept = training["history"], training["kept_epoch"]
    last = history[kept - 1]
    if as_json:
        echo_json(
            {
                "folder": str(store.folder),
                "network": str(network),
                "rows": len(store),
                "width": store.rows.shape[1],
                "digest": store.digest,
                "kept_epoch": kept,
                "history": history,
                "seconds": training["seconds"],
            }
        )
        return
    say(
        f"{len(history)} epoch{'s' if len(history) > 1 else ''} in {training['seconds']:.0f} s; kept is epoch {kept}: "
        f"validation accuracy {100 * last['validation_accuracy']:.1f} %"
        + (f", adversary {100 * last['adversary_balanced_accuracy']:.1f} %" if "adversary_loss" in last else "")
    )
    print_path("Network", network)
    print_path("Store", store.folder)
    say(f"{len(store)} rows × {store.rows.shape[1]}", indent="  ")
    say("Next: unspur-paper reproduce")
