import numpy as np
import pytest

from unspur.exceptions import InputError
from unspur.subspace import AffineMap, Subspace

D = 9


def random_subspace(seed: int, k: int, d: int = D) -> Subspace:
    return Subspace.spanned_by(np.random.default_rng(seed).standard_normal((d, k)))


def orthonormality_error(basis: np.ndarray) -> float:
    return float(np.abs(basis.T @ basis - np.eye(basis.shape[1])).max(initial=0.0))


def same_span(a: Subspace, b: Subspace) -> bool:
    return a.dim == b.dim and bool(np.allclose(a.basis @ a.basis.T, b.basis @ b.basis.T, atol=1e-10))


class TestSubspace:
    @pytest.mark.parametrize("share_outside", [1e-3, 1e-5, 1e-7])
    def test_basis_stays_orthonormal_through_nearly_dependent_directions(self, share_outside):
        rng = np.random.default_rng(1)
        subspace = Subspace.empty(60).with_direction(rng.standard_normal(60))
        naive = subspace.basis
        for _ in range(40):
            inside = subspace.basis @ rng.standard_normal(subspace.dim)
            vector = inside / np.linalg.norm(inside) + share_outside * rng.standard_normal(60) / np.sqrt(60)
            subspace = subspace.with_direction(vector)
            once = vector - naive @ (naive.T @ vector)
            naive = np.column_stack([naive, once / np.linalg.norm(once)])
        assert orthonormality_error(subspace.basis) < 1e-12
        # Control: one pass of Gram–Schmidt on the same directions does not hold it.
        assert orthonormality_error(naive) > 1e-12

    def test_a_new_direction_keeps_the_old_ones_and_extends_the_span(self):
        old, vector = random_subspace(2, 3), np.random.default_rng(3).standard_normal(D)
        new = old.with_direction(5.0 * vector)
        np.testing.assert_array_equal(new.basis[:, :3], old.basis)
        np.testing.assert_allclose(new.component(vector), vector, atol=1e-12)
        assert not np.allclose(old.component(vector), vector, atol=1e-2)

    def test_spanned_by_drops_dependent_columns(self):
        a, b, c = np.random.default_rng(6).standard_normal((3, D))
        vectors = np.column_stack([a, -2 * a, b, 1e6 * a + b, np.zeros(D), 3 * a - b, c])
        subspace = Subspace.spanned_by(vectors)
        assert subspace.dim == 3
        assert same_span(subspace, Subspace.spanned_by(np.column_stack([a, b, c])))
        np.testing.assert_allclose(subspace.reject(vectors), 0, atol=1e-8)

    def test_empty_subspace_holds_nothing(self):
        empty, vector = Subspace.empty(4), np.arange(4.0)
        assert (empty.dim, empty.ambient) == (0, 4)
        np.testing.assert_array_equal(empty.component(vector), np.zeros(4))
        np.testing.assert_array_equal(empty.reject(vector), vector)
        assert Subspace.spanned_by(np.zeros((4, 3))).dim == 0

    def test_component_and_rejection_split_a_vector_at_a_right_angle(self):
        subspace = random_subspace(8, 3)
        vectors = np.random.default_rng(9).standard_normal((D, 5))
        inside, outside = subspace.component(vectors), subspace.reject(vectors)
        np.testing.assert_allclose(inside + outside, vectors, atol=1e-13)
        np.testing.assert_allclose(subspace.basis.T @ outside, 0, atol=1e-14)
        np.testing.assert_allclose(np.sum(inside * outside, axis=0), 0, atol=1e-13)
        for j in range(5):
            np.testing.assert_allclose(subspace.component(vectors[:, j]), inside[:, j], atol=1e-14)

    def test_union_spans_both_and_counts_shared_directions_once(self):
        a, b, c = np.random.default_rng(10).standard_normal((3, D))
        left = Subspace.spanned_by(np.column_stack([a, b]))
        right = Subspace.spanned_by(np.column_stack([b, c]))
        union = left.union(right)
        assert union.dim == 3
        for vector in (a, b, c):
            np.testing.assert_allclose(union.reject(vector), 0, atol=1e-10)
        assert same_span(union, right.union(left))
        assert same_span(left.union(Subspace.empty(D)), left)
        assert same_span(Subspace.empty(D).union(left), left)

    @pytest.mark.parametrize("angles", [(0.3, 1.1), (1.1, 0.3), (0.0, np.pi / 2), (1e-9, 0.5)])
    def test_angles_are_those_of_a_known_rotation(self, angles):
        first, second = angles
        e = np.eye(6)
        plane = Subspace(e[:, :2])
        turned = np.column_stack(
            [np.cos(first) * e[0] + np.sin(first) * e[2], np.cos(second) * e[1] + np.sin(second) * e[3]]
        )
        # Another basis of the same plane: angles belong to the subspace, not to its basis.
        mixed = turned @ np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
        seen = plane.angles(Subspace.spanned_by(mixed))
        np.testing.assert_allclose(seen, sorted(angles), rtol=1e-6, atol=1e-14)
        np.testing.assert_allclose(Subspace.spanned_by(mixed).angles(plane), seen, rtol=1e-6, atol=1e-14)

    def test_angles_number_the_smaller_dimension(self):
        line = Subspace(np.eye(5)[:, :1])
        solid = Subspace(np.eye(5)[:, 1:4])
        np.testing.assert_allclose(line.angles(solid), [np.pi / 2])
        assert line.angles(Subspace.empty(5)).shape == (0,)

    @pytest.mark.parametrize(
        "basis", [np.ones(3), np.zeros((2, 3)), 2 * np.eye(3), np.ones((3, 2)) / np.sqrt(3), np.full((3, 1), np.nan)]
    )
    def test_constructor_refuses_what_is_not_an_orthonormal_basis(self, basis):
        with pytest.raises(InputError):
            Subspace(basis)

    @pytest.mark.parametrize("vector", [np.zeros(D), np.full(D, np.nan), np.r_[np.inf, np.ones(D - 1)]])
    def test_a_direction_needs_a_positive_finite_length(self, vector):
        with pytest.raises(InputError, match="length"):
            Subspace.empty(D).with_direction(vector)

    def test_a_direction_inside_the_subspace_is_refused(self):
        subspace = random_subspace(11, 3)
        inside = subspace.basis @ np.array([1.0, -2.0, 0.5])
        with pytest.raises(InputError, match="already lies"):
            subspace.with_direction(inside)
        with pytest.raises(InputError, match="already lies"):
            Subspace(np.eye(3)).with_direction(np.array([1.0, 2.0, 3.0]))
        assert subspace.with_direction(inside + 1e-5 * subspace.reject(np.ones(D))).dim == 4

    def test_union_of_different_spaces_is_refused_with_both_dimensions(self):
        with pytest.raises(InputError, match=r"R\^4 and R\^5"):
            Subspace.empty(4).union(Subspace.empty(5))


def orthogonal(form: str, seed: int, k: int = 2) -> AffineMap:
    centre = 3 * np.random.default_rng(seed + 100).standard_normal(D)
    make = {"remove": AffineMap.removing, "keep": AffineMap.keeping}[form]
    return make(random_subspace(seed, k), centre)


def oblique(form: str, seed: int, k: int = 2) -> AffineMap:
    """Projection that LEACE makes: L = A, R = ΩA(AᵀΩA)⁻¹, with a positive definite Ω."""
    rng = np.random.default_rng(seed)
    a, root, centre = rng.standard_normal((D, k)), rng.standard_normal((D, D)), rng.standard_normal(D)
    omega = root @ root.T + np.eye(D)
    right = omega @ a @ np.linalg.inv(a.T @ omega @ a)
    return AffineMap(centre, right, a, form, centre if form == "keep" else np.zeros(()))


MAPS = {
    "removal": lambda: orthogonal("remove", 1),
    "projection": lambda: orthogonal("keep", 2),
    "oblique removal": lambda: oblique("remove", 3),
    "oblique projection": lambda: oblique("keep", 4),
}
every_map = pytest.mark.parametrize("make", MAPS.values(), ids=MAPS.keys())


class TestAffineMap:
    rows = np.random.default_rng(20).standard_normal((12, D))

    def test_removal_is_the_dense_projection_off_the_subspace(self):
        v, c = random_subspace(1, 3), np.random.default_rng(21).standard_normal(D)
        dense = c + (self.rows - c) @ (np.eye(D) - v.basis @ v.basis.T)
        np.testing.assert_allclose(AffineMap.removing(v, c)(self.rows), dense, atol=1e-13)
        np.testing.assert_allclose((dense - c) @ v.basis, 0, atol=1e-13)
        assert np.abs((self.rows - c) @ v.basis).min() > 1e-4  # control: there was something to remove

    def test_keeping_is_the_dense_projection_onto_the_subspace(self):
        v, c = random_subspace(1, 3), np.random.default_rng(21).standard_normal(D)
        dense = c + (self.rows - c) @ v.basis @ v.basis.T
        np.testing.assert_allclose(AffineMap.keeping(v, c)(self.rows), dense, atol=1e-13)

    def test_removed_and_kept_parts_add_up_to_the_row(self):
        v, c = random_subspace(5, 4), np.random.default_rng(22).standard_normal(D)
        np.testing.assert_allclose(
            AffineMap.removing(v, c)(self.rows) + AffineMap.keeping(v, c)(self.rows) - c, self.rows, atol=1e-13
        )

    def test_oblique_removal_follows_its_factors_and_differs_from_the_orthogonal_one(self):
        m = oblique("remove", 6)
        dense = self.rows - (self.rows - m.centre) @ m.right @ m.left.T
        np.testing.assert_allclose(m(self.rows), dense, atol=1e-12)
        np.testing.assert_allclose((m(self.rows) - m.centre) @ m.right, 0, atol=1e-12)
        straight = AffineMap.removing(Subspace.spanned_by(m.right), m.centre)
        assert not np.allclose(straight(self.rows), dense, atol=1e-2)

    @every_map
    def test_matrix_is_the_linear_part(self, make):
        m = make()
        steps = m(self.rows[1:]) - m(self.rows[:-1])
        np.testing.assert_allclose(np.diff(self.rows, axis=0) @ m.matrix(), steps, atol=1e-12)

    @every_map
    def test_projections_are_idempotent_and_leave_the_centre(self, make):
        m = make()
        once = m(self.rows)
        np.testing.assert_allclose(m(once), once, atol=1e-12)
        np.testing.assert_allclose(m(m.centre), m.centre, atol=1e-12)
        assert not np.allclose(once, self.rows, atol=1e-2)

    @pytest.mark.parametrize("make_first", MAPS.values(), ids=[f"{name} first" for name in MAPS])
    @pytest.mark.parametrize("make_then", MAPS.values(), ids=[f"then {name}" for name in MAPS])
    def test_composition_equals_applying_one_after_the_other(self, make_first, make_then):
        first, then = make_first(), make_then()
        both = then.compose(first)
        np.testing.assert_allclose(both(self.rows), then(first(self.rows)), atol=1e-11)
        np.testing.assert_allclose(both.matrix(), first.matrix() @ then.matrix(), atol=1e-11)
        assert both.rank == np.linalg.matrix_rank(first.matrix() @ then.matrix())
        if first.form != then.form or make_first is not make_then:
            # Control: the order matters, so a composition the wrong way round would be seen.
            assert not np.allclose(both(self.rows), first(then(self.rows)), atol=1e-2)

    @pytest.mark.parametrize("first_form", ["remove", "keep"])
    @pytest.mark.parametrize("then_form", ["remove", "keep"])
    def test_composition_holds_for_overlapping_subspaces_and_different_centres(self, first_form, then_form):
        a, b, c = np.random.default_rng(23).standard_normal((3, D))
        here, there = 10 * np.random.default_rng(24).standard_normal((2, D))
        make = {"remove": AffineMap.removing, "keep": AffineMap.keeping}
        first = make[first_form](Subspace.spanned_by(np.column_stack([a, b])), here)
        then = make[then_form](Subspace.spanned_by(np.column_stack([b, c])), there)
        both = then.compose(first)
        np.testing.assert_allclose(both(self.rows), then(first(self.rows)), atol=1e-11)
        assert both.rank == np.linalg.matrix_rank(first.matrix() @ then.matrix())
        # Control: the centres matter.
        assert not np.allclose(both(self.rows), then.compose(make[first_form](Subspace(first.right), there))(self.rows))

    @pytest.mark.parametrize("k", [1, 3, D])
    def test_rank_is_what_is_left_or_kept(self, k):
        assert orthogonal("remove", 7, k).rank == D - k
        assert orthogonal("keep", 7, k).rank == k
        assert oblique("remove", 8, min(k, 3)).rank == D - min(k, 3)
        assert oblique("keep", 8, min(k, 3)).rank == min(k, 3)

    @pytest.mark.parametrize("make", [orthogonal, oblique])
    def test_removing_the_same_twice_lowers_the_rank_once(self, make):
        m = make("remove", 9, 2)
        twice = m.compose(m)
        assert twice.rank == m.rank == D - 2
        np.testing.assert_allclose(twice(self.rows), m(self.rows), atol=1e-12)
        # Control: removing two directions that the first removal left whole lowers it again.
        untouched = Subspace.spanned_by(Subspace.spanned_by(m.right).reject(np.eye(D)[:, :2]))
        assert AffineMap.removing(untouched, np.zeros(D)).compose(m).rank == D - 4

    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @every_map
    def test_dtype_of_the_rows_is_kept(self, make, dtype):
        rows = self.rows.astype(dtype)
        image = make()(rows)
        assert image.dtype == dtype
        exact = make()(rows.astype(np.float64))
        np.testing.assert_allclose(image, exact, rtol=0, atol=20 * np.finfo(dtype).eps * np.abs(exact).max())

    @pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint8, bool])
    @every_map
    def test_integers_become_float64(self, make, dtype):
        rows = np.random.default_rng(25).integers(0, 2, (6, D)).astype(dtype)
        image = make()(rows)
        assert image.dtype == np.float64
        np.testing.assert_allclose(image, make()(rows.astype(np.float64)))
        assert not np.allclose(image, np.round(image))

    @every_map
    def test_one_row_and_any_batch_of_rows_are_mapped_alike(self, make):
        m, batch = make(), self.rows.reshape(2, 3, 2, D)
        together = m(batch)
        assert together.shape == batch.shape
        np.testing.assert_allclose(together.reshape(12, D), m(self.rows), atol=1e-13)
        for row, image in zip(self.rows, m(self.rows), strict=True):
            assert m(row).shape == (D,)
            np.testing.assert_allclose(m(row), image, atol=1e-13)
        assert m(self.rows[:0]).shape == (0, D)
        np.testing.assert_allclose(m(self.rows[0].tolist()), m(self.rows)[0], atol=1e-13)

    @pytest.mark.parametrize("shape", [(D + 1,), (4, D - 1), (D, 4), (), (0,)])
    def test_rows_of_another_width_are_refused_with_both_numbers(self, shape):
        with pytest.raises(InputError, match=rf"{D} features.*{shape!r}".replace("(", r"\(").replace(")", r"\)")):
            orthogonal("remove", 1)(np.zeros(shape))

    def test_removing_an_empty_subspace_is_the_identity(self):
        identity = AffineMap.removing(Subspace.empty(D), 1e3 * np.ones(D))
        np.testing.assert_array_equal(identity(self.rows), self.rows)
        assert identity.rank == D
        other = orthogonal("keep", 2)
        np.testing.assert_allclose(other.compose(identity)(self.rows), other(self.rows), atol=1e-11)
        np.testing.assert_allclose(identity.compose(other)(self.rows), other(self.rows), atol=1e-11)

    def test_keeping_an_empty_subspace_is_refused(self):
        with pytest.raises(InputError, match="no direction"):
            AffineMap.keeping(Subspace.empty(D), np.zeros(D))

    def test_maps_of_different_spaces_are_not_composed(self):
        with pytest.raises(InputError, match=r"R\^9 and R\^5"):
            AffineMap.removing(Subspace.empty(5), np.zeros(5)).compose(orthogonal("remove", 1))

    @pytest.mark.parametrize(
        ("centre", "right", "left", "form"),
        [
            (np.zeros(4), np.zeros((4, 2)), np.zeros((4, 1)), "remove"),
            (np.zeros(4), np.zeros((5, 2)), np.zeros((5, 2)), "remove"),
            (np.zeros((4, 1)), np.zeros((4, 2)), np.zeros((4, 2)), "remove"),
            (np.zeros(4), np.zeros(4), np.zeros(4), "remove"),
            (np.zeros(4), np.zeros((4, 2)), np.zeros((4, 2)), "erase"),
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, centre, right, left, form):
        with pytest.raises(InputError):
            AffineMap(centre, right, left, form)


def test_a_composition_that_cancels_has_rank_zero():
    v = Subspace.spanned_by(np.random.default_rng(0).standard_normal((7, 2)))
    centre = np.arange(7.0)
    keep, remove = AffineMap.keeping(v, centre), AffineMap.removing(v, centre)
    assert keep.compose(remove).rank == 0
    assert remove.compose(keep).rank == 0
    assert keep.compose(keep).rank == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_that_are_not_finite_are_refused(bad):
    vectors = np.eye(4)[:, :2].copy()
    vectors[0, 1] = bad
    with pytest.raises(InputError, match="finite"):
        Subspace.spanned_by(vectors)


def test_spaces_that_do_not_match_are_named():
    with pytest.raises(InputError, match=r"R\^4 and R\^3"):
        Subspace.empty(4).angles(Subspace.empty(3))
    with pytest.raises(InputError, match=r"shape \(4,\); got \(3,\)"):
        Subspace.empty(4).with_direction(np.ones(3))
