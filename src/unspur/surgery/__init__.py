"""Put a removal into a model: fold it into the next linear layer, hook it into a network, or export it.

`scrub` removes a concept from several layers of a network. torch, onnx and sentence-transformers are imported only by
the functions that need them.
"""

from unspur.surgery.folding import fold, to_onnx
from unspur.surgery.hooks import Attachment, as_module, as_sentence_module, attach
from unspur.surgery.scrubbing import LayerLeakage, Scrubbing, ScrubbingReport, scrub

__all__ = [
    "Attachment",
    "LayerLeakage",
    "Scrubbing",
    "ScrubbingReport",
    "as_module",
    "as_sentence_module",
    "attach",
    "fold",
    "scrub",
    "to_onnx",
]
