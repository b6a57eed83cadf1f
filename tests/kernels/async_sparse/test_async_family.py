"""Configurations of unit_ring and of the source's ladder: what they need, what is refused, which are tried, what bind
hands to a launch. Without a GPU."""

from __future__ import annotations

import sys
from dataclasses import replace
from math import ceil
from types import ModuleType, SimpleNamespace

import compiled
import numpy as np
import pytest
import racing
from hypothesis import given, settings
from hypothesis import strategies as st
from racing import A100, B200, H100_PCIE, H200
from refused import says

from kernels import async_sparse as room
from kernels import jit, pitch, tuning
from kernels.async_sparse import family, launch, layer, lines, planning, published, unit
from kernels.async_sparse.family import Shape, Unit
from kernels.contract import Operands
from kernels.formats import bcsr, half
from kernels.formats.half import Half

MOST = 232_448  # bytes of shared memory of a block on compute capability 9.0
USUAL = Shape("bfloat16", 64, 64, "F", "C")
SHAPES = tuple(
    Shape(dtype, b_row, b_col, b, c)
    for dtype in family.DTYPES
    for b_row in (64, 128)
    for b_col in bcsr.SIDES
    for b in "FC"
    for c in "FC"
)
IMAGINED = (1, 3, 8, 64, 77, 136, 1000, 4096)


class Array(np.ndarray):
    """A NumPy array with the one attribute of CuPy's that bind needs."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, memset_async=lambda *_: None)


def like(array) -> Array:
    """The same numbers in the same memory order at a multiple of 16 bytes, where a GPU's arrays begin."""
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    raw = np.zeros(array.nbytes + 16, np.uint8)
    begin = -raw.ctypes.data % 16
    there = raw[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape, order=order)
    there[...] = array
    return there.view(Array)


def on_fake_gpu(p):
    """A problem of host arrays that look like the device's."""
    a, b = p.host().a, p.host().b
    made = [replace(a, **{x: like(getattr(a, x)) for x in ("row_ptr", "col_idx", "val")})]
    shape = (p.m, p.n)
    if p.label.endswith("linear"):
        c = np.zeros(shape[::-1], np.uint16 if isinstance(b, Half) else np.float32).T
    else:
        c = np.zeros(shape, np.uint16 if isinstance(b, Half) else np.float32)
    for array in (b.bits if isinstance(b, Half) else b, c):
        array = like(array)
        made.append(Half(b.dtype, array) if isinstance(b, Half) else array)
    return replace(p, make_device=lambda: Operands(*made), _device=None)


def shape_only(p, shape: Shape, blocks: int = 100):
    """A problem whose operands are asked for nothing but what a shape and a key say."""
    b = np.zeros((2, 2), np.float32 if shape.dtype == "tf32" else np.uint16, order=shape.b_order)
    c = np.zeros((2, 2), b.dtype, order=shape.c_order)
    if shape.dtype != "tf32":
        b, c = Half(shape.dtype, b), Half(shape.dtype, c)
    a = SimpleNamespace(block=(shape.b_row, shape.b_col), blocks=blocks)
    return replace(p, make_device=lambda: Operands(a, b, c), _device=None)


def problem(m=18944, n=1024, k=3584, shape: Shape = USUAL, blocks: int = 1658):
    return shape_only(room.problem(m, n, k, 0), shape, blocks)


# ------------------------------------------------------------------------------ what a tile needs


def test_shared_memory_by_hand():
    """64 x 512 of C in bfloat16: A has 8 KiB a step, B 32 KiB for a warpgroup; a box of C is 64 x 64 of 2 bytes."""
    kib = 1024
    assert family.shared_bytes(Unit(256, shared=3, private=4), USUAL) == (3 * 8 + 4 * 32 + 5 * 8) * kib
    tall = Shape("bfloat16", 128, 128, "F", "F")
    config = Unit(256, tall=True, shared=3, private=8, buffers=1)
    assert family.shared_bytes(config, tall) == (3 * 32 + 8 * 8 + 3 * 8) * kib
    # Of 96 columns a box has 32, 4 KiB; of 8 it has 8.
    assert family.shared_bytes(Unit(96, shared=1, private=2), USUAL) == (8 + 24 + 5 * 4) * kib
    assert family.shared_bytes(Unit(8, shared=1, private=2), USUAL) == (8 + 2 + 5) * kib
    # float32: a row-major line of 128 bytes has 32 columns; column-major boxes have 64, in two halves.
    for c, box in (("C", 8), ("F", 16)):
        shape = replace(USUAL, dtype="tf32", c_order=c)
        assert family.shared_bytes(Unit(128, shared=2, private=3), shape) == (16 + 48 + 5 * box) * kib


def test_a_shape_says_how_blocks_make_steps():
    """A step has 128 bytes of k: 64 values of 16 bits, 32 of TF32."""
    for dtype, expected in (
        ("bfloat16", {16: (4, 1), 32: (2, 1), 64: (1, 1), 128: (1, 2)}),
        ("tf32", {16: (2, 1), 32: (1, 1), 64: (1, 2), 128: (1, 4)}),
    ):
        found = {b: Shape(dtype, 64, b, "F", "C") for b in bcsr.SIDES}
        assert {b: (shape.pieces, shape.steps) for b, shape in found.items()} == expected


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_filled_rings_fit_and_leave_no_room_for_another_unit(shape):
    for width in family.WIDTHS:
        config = family.filled(Unit(width, tall=shape.b_row == 128), shape, MOST)
        if shape.b_order == "C" and (width % 64 or shape.size == 4):
            with pytest.raises(ValueError, match="a row-major B of "):
                family.check(config, shape, MOST)
            continue
        family.check(config, shape, MOST)
        need = family.shared_bytes(config, shape) + family.STATIC
        assert need <= MOST and config.private >= 3 and 2 <= config.shared <= family.MOST_UNITS
        more = replace(config, private=config.private + 1)
        full = family.shared_bytes(more, shape) + family.STATIC > MOST
        assert full or config.private == 2 * config.shared, "a unit of the shared ring for two of the private"
        # Warpgroups take turns in the private ring: each has a unit at least while the other has one.
        assert config.private <= 2 * config.shared


def test_boxes_are_those_of_the_kernels(tmp_path):
    """The compiler's own sizes: Output for unit_ring, for opt2 to opt5, and for the persistent rungs."""
    names = [(f"{dtype}", c) for dtype in family.DTYPES for c in "CF"]
    body = []
    for dtype, c in names:
        t, size = family.DTYPES[dtype]
        column = str(c == "F").lower()
        for n in published.WIDTHS:
            few = published.widest("opt6", size)
            for widest in (64, few):
                of = f"Output<{t}, {column}, {n}, 1, {widest}>"
                wide = family.box_columns(n, size, c, widest)
                body += [
                    f"static_assert({of}::WIDE == {wide} && {n} % {wide} == 0);",
                    f"static_assert({of}::BYTES == {family.box_bytes(n, size, c, widest)});",
                    f"static_assert({of}::BYTES % 1024 == 0 && sizeof({of}) == {of}::BYTES);",
                ]
            ring = f"sizeof(Ring<{t}, {n}, {published.STAGES}>)"
            boxes = f"2 * sizeof(Output<{t}, {column}, {n}, 1, {few}>)"
            body += [
                f"static_assert({ring} == {published.shared_bytes('opt5', n, size, c)});",
                f"static_assert({ring} + {boxes} == {published.shared_bytes('opt6', n, size, c)});",
            ]
    probe = tmp_path / "sizes.cu"
    header = family.HERE / "specialised.cuh"
    text = [f'#include "{header}"', "__global__ void sizes() {", *body, "}"]
    probe.write_text("\n".join(text))
    assert jit.compile_cubin(probe, "sizes", "sm_90a").code
    persistent = (family.HERE / "persistent.cuh").read_text()
    assert "Output<T, COLUMN, N, 1, T == TF32 ? 16 : 32>" in persistent
    assert [published.widest("opt6", size) for size in (4, 2)] == [16, 32]


@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("c_order", ["C", "F"])
@pytest.mark.parametrize("name", list(published.KERNELS)[1:])
def test_every_width_of_a_rung_fits(name, c_order, dtype):
    """Beside barriers and the driver's own."""
    size = family.DTYPES[dtype][1]
    for width in published.WIDTHS:
        need = published.shared_bytes(name, width, size, c_order)
        assert need + family.STATIC <= MOST, f"{width} columns"


@pytest.mark.parametrize(
    ("config", "shape", "words"),
    [
        (Unit(40), USUAL, ["40 columns", "256, 192, 128, 96, 64, 32, 16, 8"]),
        (Unit(96), replace(USUAL, b_order="C"), ["row-major B of bfloat16", "96 columns", "64"]),
        (Unit(64), Shape("tf32", 64, 64, "C", "C"), ["row-major B of tf32", "column-major"]),
        (Unit(64, tall=True), USUAL, ["blocks of 64 rows", "tall=True"]),
        (Unit(64), replace(USUAL, b_row=128), ["blocks of 128 rows", "tall=False"]),
        (Unit(64, private=2), USUAL, ["3 and 2 units", "need 2, 3 and 1"]),
        (Unit(64, shared=1), USUAL, ["1 and 5 units", "need 2, 3 and 1"]),
        (Unit(64, buffers=0), USUAL, ["0 boxes"]),
        (Unit(256, shared=3, private=6), USUAL, ["512 columns", "264192 bytes", str(MOST), "fewer"]),
    ],
)
def test_what_a_configuration_does_not_take_is_one_sentence(config, shape, words):
    says(words, lambda: family.check(config, shape, MOST))


def test_an_entry_names_what_the_kernel_is_made_of():
    config = Unit(128, shared=4, private=7, buffers=3)
    assert family.entry(config, USUAL) == "unit_ring<BF16, K_MAJOR, false, false, 128, 4, 7, 3, 1>"
    other = Shape("float16", 128, 16, "C", "F")
    made = family.entry(replace(config, tall=True, group_kib=1), other)
    assert made == "unit_ring<F16, MN_MAJOR, true, true, 128, 4, 7, 3, 4>"


# --------------------------------------------------------------------------- the source's own width


@pytest.mark.parametrize(
    ("n", "two", "one"),
    [
        (1024, 256, 256),
        (512, 256, 256),
        (256, 128, 256),
        (1536, 256, 256),
        (320, 160, 160),
        (1000, 168, 200),
        (333, 168, 168),
        (8, 8, 8),
        (3, 8, 8),
        (16, 8, 16),
        (48, 24, 48),
    ],
)
def test_the_width_is_the_largest_that_divides_n_or_pads_it_least(n, two, one):
    assert published.wgmma_n(n) == two and published.wgmma_n(n, 1) == one


@given(n=st.integers(1, 70_000), groups=st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=100)
def test_no_other_width_pads_less(n, groups):
    width = published.wgmma_n(n, groups)
    padding = {w: -n % (groups * w) for w in published.WIDTHS}
    assert padding[width] == min(padding.values())
    assert all(padding[w] > padding[width] for w in published.WIDTHS if w > width)


# ------------------------------------------------------------------------------------ what is tried


@pytest.mark.parametrize("device", [H200, H100_PCIE], ids=lambda device: device.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_candidate_takes_the_problem(device, shape):
    for n in (1, 333, 1024, 65536):
        p = problem(n=n, shape=shape)
        found = family.candidates(p, device)
        if shape.dtype == "tf32" and shape.b_order == "C":
            assert not found
            continue
        assert found and len(set(found)) == len(found) <= family.MOST + family.AS_THEY_LIE
        as_they_lie = [config for config in found if not config.longest_first]
        assert 1 <= len(as_they_lie) <= family.AS_THEY_LIE
        assert {replace(config, longest_first=True) for config in as_they_lie} <= set(found)
        assert all(family.fits(config, p, device) for config in found)
        assert all(config.group_kib in family.GROUPS_KIB for config in found)


def test_candidates_are_those_with_the_best_prediction():
    p = problem(n=16384)
    blocks, sms = p.device().a.blocks, H200.properties.multiprocessor_count
    found = family.candidates(p, H200)
    each = {w: family.filled(Unit(w), USUAL, MOST) for w in family.WIDTHS}
    time = {w: family.predict(c, p.m, p.n, blocks, USUAL, sms) for w, c in each.items()}
    best = sorted(time, key=time.get)[: family.MOST // len(family.GROUPS_KIB)]
    assert list(dict.fromkeys(config.width for config in found)) == best
    assert best[0] == 256, "copies less for a multiplication than any other"


def test_narrow_products_want_narrow_tiles():
    """512 columns of a tile for n = 64 multiply mostly nothing."""
    for n, most in ((8, 32), (64, 64), (128, 128)):
        assert family.candidates(problem(n=n), H200)[0].width <= most


def test_a_group_of_panels_is_tried_only_where_it_is_another_order():
    """4 MiB hold 512 columns of k = 3584; all of a narrow B is one group."""
    assert {c.group_kib for c in family.candidates(problem(n=16384), H200)} == {*family.GROUPS_KIB}
    assert {c.group_kib for c in family.candidates(problem(n=8), H200)} == {family.GROUPS_KIB[0]}


@given(
    width=st.sampled_from(family.WIDTHS),
    m=st.integers(64, 10**6),
    n=st.integers(1, 10**5),
    blocks=st.integers(0, 10**6),
    sms=st.integers(1, 200),
    shape=st.sampled_from(SHAPES),
)
@settings(deadline=None, max_examples=200)
def test_more_work_never_takes_less_time(width, m, n, blocks, sms, shape):
    config = family.filled(Unit(width, tall=shape.b_row == 128), shape, MOST)

    def time(n=n, blocks=blocks, sms=sms):
        return family.predict(config, m, n, blocks, shape, sms)

    assert 0 < time() <= time(n=2 * n) and time() <= time(blocks=2 * blocks)
    assert time(sms=2 * sms) <= time()


def test_other_gpus_take_no_configuration():
    for device in (A100, B200):
        assert not family.fits(family.filled(Unit(64), USUAL, MOST), problem(), device)


# ---------------------------------------------------------------------------------------- the file

KEPT = racing.Kept(family)


def test_every_configuration_is_read_as_it_was_written():
    for shape in SHAPES:
        for config in family.candidates(problem(shape=shape), H200):
            assert tuning.choices.parse_knobs(tuning.knobs(config), Unit) == config


def test_choices_have_the_columns_that_tell_problems_apart(tmp_path):
    path = tmp_path / "choices.csv"
    other = Shape("tf32", 128, 32, "F", "F")
    KEPT.write(path, problem(), Unit(128))
    KEPT.write(path, problem(shape=other, blocks=7), Unit(64, tall=True, group_kib=9))
    assert {key: choice.config for key, choice in KEPT.read(path).items()} == {
        (18944, 1024, 3584, 1658, 64, 64, "bfloat16", "F", "C"): Unit(128),
        (18944, 1024, 3584, 7, 128, 32, "tf32", "F", "F"): Unit(64, tall=True, group_kib=9),
    }
    head, *rows = path.read_text().splitlines()
    assert head == ("m,n,k,blocks,b_row,b_col,dtype,b_order,c_order,nvrtc,kernels,median_us,family,knobs")
    assert ",unit,width=64 tall=True " in rows[0] and ",bfloat16,F,C," in rows[1]


def test_a_choice_is_for_its_problem_and_its_gpu(monkeypatch, tmp_path):
    own, shipped = KEPT.in_folders(monkeypatch, tmp_path)
    config = family.filled(Unit(192), USUAL, MOST)
    KEPT.write(shipped / "nvidia-h200.csv", problem(), config)
    assert KEPT.look_up(problem(), H200) == config
    assert KEPT.look_up(problem(), H100_PCIE) is None
    for other in (
        problem(n=1025),
        problem(blocks=1659),
        problem(shape=replace(USUAL, b_order="C")),
        problem(shape=replace(USUAL, c_order="F")),
        problem(shape=replace(USUAL, dtype="float16")),
        problem(shape=replace(USUAL, b_col=32)),
    ):
        assert KEPT.look_up(other, H200) is None
    # Edited by hand: too many units for the shared memory.
    KEPT.write(own / "nvidia-h200.csv", problem(), replace(config, private=99))
    assert KEPT.look_up(problem(), H200) == config, "the shipped one, which fits"


def test_shipped_choices_fit_their_gpu():
    for path in family.CHOICES.shipped.glob("*.csv"):
        properties, choices = racing.SHIPPED[path.stem].properties, KEPT.read(path)
        assert choices, path.name
        for (*_, b_row, b_col, dtype, b, c), choice in choices.items():
            shape = Shape(dtype, max(64, b_row), b_col, b, c)
            family.check(choice.config, shape, properties.max_shared_memory_per_block_optin)
            assert choice.median_us > 0


@pytest.fixture
def trials(monkeypatch):
    """tune without a GPU: the narrower a configuration, the faster; `bound` has what is made ready."""
    made = racing.track(monkeypatch, lambda config, rounds: 100.0 + config.width)
    made.bound = []

    def bind(name, p, device, config=None):
        made.bound.append((name, config))
        if name in refusing:
            raise ValueError(f"{name} does not take it")
        return SimpleNamespace(name=name, prepare_ms=1.0)

    refusing = made.refusing = []
    monkeypatch.setattr(unit, "bind", bind)
    monkeypatch.setattr(published, "bind", bind)
    return made


def test_bind_tunes_once_and_reads_from_then_on(trials, tmp_path):
    path = tmp_path / "choices.csv"
    found = family.candidates(problem(), H200)
    first = launch.bind_auto("auto", problem(), H200, file=path)
    choice = min(found, key=lambda config: config.width)
    assert trials.bound == [
        ("opt5", None),
        ("opt5", None),
        *(("auto", c) for c in found),
        ("opt5", None),
        ("auto", choice),
        ("auto", choice),
    ], "the reference without signs, too, and both on whole numbers; then what is returned"
    assert {job[:2] for job in trials.compiled} == {(family.SOURCE, family.entry(config, USUAL)) for config in found}
    heats = len(trials.heats)
    trials.bound.clear()
    second = launch.bind_auto("auto", problem(), H200, file=path)
    assert len(trials.heats) == heats and trials.bound == [("auto", choice)]
    assert first.prepare_ms > second.prepare_ms == 1.0, "trials count as preparation"


def test_what_the_sources_kernels_refuse_is_checked_with_another(trials):
    trials.refusing += ["opt5"]
    launch.tune(problem(), H200)
    assert [name for name, _ in trials.bound][:4] == ["opt5", "opt0", "opt0", "auto"]
    trials.bound.clear()
    trials.refusing += ["opt0"]
    launch.tune(problem(), H200)
    judges = ["opt5", "opt0", "unit_ring", "unit_ring"]
    assert [name for name, _ in trials.bound][:5] == [*judges, "auto"]


def test_a_row_major_tf32_is_refused_by_all_that_multiply_on_tensor_cores(loaded):
    p = problem(shape=Shape("tf32", 64, 64, "C", "C"))
    for name in ("unit_ring", "auto"):
        says(["row-major B of tf32", "column-major"], lambda name=name: room.bind(name, p, H200))
    for name in [*published.KERNELS][1:]:
        says([name, "row-major", "use opt0"], lambda name=name: room.bind(name, p, H200))


# ------------------------------------------------------------------------- what bind prepares


def stack_by_hand(dense: np.ndarray, b_col: int):
    """(row_ptr, col_idx, blocks) of 64 x b_col, one by one."""
    m, k = dense.shape
    rows, columns = ceil(m / 64), ceil(k / b_col)
    padded = np.zeros((rows * 64, columns * b_col), dense.dtype)
    padded[:m, :k] = dense
    row_ptr, col_idx, val = [0], [], []
    for i in range(rows):
        for j in range(columns):
            block = padded[64 * i : 64 * i + 64, b_col * j : b_col * j + b_col]
            if block.any():
                col_idx.append(j)
                val.append(block)
        row_ptr.append(len(col_idx))
    return row_ptr, col_idx, np.array(val).reshape(-1, 64, b_col)


@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("block", [16, 32, (16, 128), (32, 16)])
@pytest.mark.parametrize(
    ("m", "k", "density"),
    [(128, 128, 0.5), (300, 333, 0.05), (1, 1, 1), (65, 200, 1), (1000, 70, 0.01), (77, 90, 0)],
)
def test_low_blocks_are_stacked_to_64_rows(m, k, density, block, dtype):
    """Empty rows, ragged edges, no block at all: the same matrix, and no block of nothing but zeros."""
    a = bcsr.random(m, k, density, 3, block=block, dtype=dtype)
    made = bcsr.validate(unit.stacked(a))
    b_col = a.block[1]
    assert made.block == (64, b_col) and made.nnz == a.nnz
    row_ptr, col_idx, val = stack_by_hand(bcsr.to_dense(a), b_col)
    assert made.row_ptr.tolist() == row_ptr and made.col_idx.tolist() == col_idx
    assert np.array_equal(bcsr.to_dense(made), bcsr.to_dense(a))
    numbers = half.from_bits(made.val, dtype) if dtype in half.DTYPES else made.val
    assert np.array_equal(numbers, val)


def test_empty_rows_between_low_blocks():
    """Block rows 0 to 4 of a stacked row and the next: two blocks fall into one, an empty row stays empty."""
    dense = np.zeros((64 * 4, 64), np.float32)
    for row, column in ((0, 0), (63, 15), (40, 33), (64 * 2 + 17, 63), (64 * 2 + 50, 48)):
        dense[row, column] = row + 1
    made = unit.stacked(bcsr.from_dense(dense, block=16))
    assert made.row_ptr.tolist() == [0, 2, 2, 3, 3] and made.col_idx.tolist() == [0, 2, 3]
    assert np.array_equal(bcsr.to_dense(made), dense)


@pytest.mark.parametrize("block", [64, 128, (64, 16)])
def test_high_blocks_stay_as_they_are(block):
    a = bcsr.random(300, 300, 0.3, 1, block=block)
    assert unit.stacked(a) is a


def test_stacked_blocks_must_have_rows_that_a_tensor_map_counts(monkeypatch):
    diagonal = bcsr.from_dense(np.eye(256, dtype=np.float32), block=16)
    monkeypatch.setattr(bcsr, "INT32_MAX", 64 * 16 - 1)
    says(["64 rows", "split the matrix"], lambda: unit.stacked(diagonal))


@pytest.mark.parametrize("counts", [[3, 0, 7, 7, 1], [0], [0, 0, 0], [5], [1, 1, 1, 1]])
def test_work_is_in_the_order_of_length_or_as_it_lies(counts):
    row_ptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    sorted_rows = sorted(range(len(counts)), key=lambda row: (-counts[row], row))
    for longest_first, rows in ((True, sorted_rows), (False, list(range(len(counts))))):
        table = unit.work_order(row_ptr, longest_first)
        assert table.dtype == np.int32 and table.shape == (len(counts), 4)
        assert table.flags.c_contiguous and not table[:, 3].any()
        assert table[:, 0].tolist() == rows, "of equal ones in their order, so that neighbours stay so"
        for row, first, end, _ in table:
            assert (first, end) == (row_ptr[row], row_ptr[row + 1])


@pytest.fixture
def loaded(monkeypatch):
    """bind without a GPU: (source, entry, arch, bytes of dynamic shared memory) of what it would load."""
    import cuda.core

    cubins = []

    def load(cubin, dynamic=0):
        cubins.append((*cubin, dynamic))
        return cubin[1]

    def array(shape, dtype) -> Array:
        return like(np.zeros(shape, dtype))

    cupy = ModuleType("cupy")
    cupy.uint16, cupy.uint32, cupy.float32 = np.uint16, np.uint32, np.float32
    cupy.empty = cupy.zeros = array
    stream = SimpleNamespace(synchronize=lambda: None)
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda.core, "LaunchConfig", lambda **knobs: SimpleNamespace(**knobs))
    monkeypatch.setattr(jit, "compile_cubin", lambda *what: what)
    monkeypatch.setattr(jit, "load", load)

    def prepared(work):
        a, rows = work()
        arrays = {x: like(getattr(a, x)) for x in ("row_ptr", "col_idx", "val")}
        return (replace(a, **arrays), like(rows)), 1.25

    monkeypatch.setattr(unit, "timed", prepared)
    for module in (unit, published):
        monkeypatch.setattr(module, "tensor_map", lambda *what: what)
        monkeypatch.setattr(module, "blocks_of", lambda a: like(a.val).reshape(-1, a.block[1]).view(Array))
    return cubins


def is_map(x, array, box, swizzle: int) -> bool:
    """Whether a tensor map is of an array, in boxes that the driver's limits take."""
    wide = box[1] * array.dtype.itemsize
    assert max(box) <= 256 and wide % 16 == 0 and (swizzle == 0 or wide <= swizzle)
    assert array.data.ptr % 16 == 0 and array.strides[0] % 16 == 0, "what TMA asks of a matrix"
    return x[0] is array and x[1:] == (box, swizzle)


@pytest.mark.parametrize("layout", ["source", "linear", "row"])
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("block", [64, 128, 16, (128, 32)])
@pytest.mark.parametrize(("m", "n", "k"), [(300, 520, 200), (301, 77, 133), (64, 1, 64), (1, 8, 1)])
def test_unit_ring_is_launched_for_every_tile(loaded, m, n, k, block, dtype, layout):
    p = on_fake_gpu(room.problem(m, n, k, 0.3, block=block, dtype=dtype, layout=layout))
    shape = family.shape_of(p)
    if shape.b_order == "C" and dtype == "tf32":
        says(["row-major B"], lambda: room.bind("unit_ring", p, H200))
        return
    bound = room.bind("unit_ring", p, H200)
    config = launch.usual(p, H200)
    (step,) = [s for s in bound.steps if s[0].startswith("unit_ring")]
    entry, how, (a, b, c, rows, col_idx, counters, high, panels, group, steps) = step
    assert entry == family.entry(config, shape) and how.block == 384
    assert how.shmem_size == loaded[-1][3] == family.shared_bytes(config, shape)
    assert [high, panels] == [ceil(m / shape.b_row), ceil(n / config.columns)]
    assert how.grid == min(132, high * panels) and 1 <= group <= panels and steps == shape.steps
    width, values = 128 // shape.size // shape.pieces, 128 // shape.pieces
    assert is_map(a, a[0], (64, width), values)
    if shape.b_order == "F":
        assert is_map(b, b[0], (config.width, width), values)
    else:
        assert is_map(b, b[0], (width, 64), 128)
    wide = family.box_columns(config.width, shape.size, shape.c_order)
    if shape.c_order == "F":
        assert is_map(c, c[0], (wide, 32 if dtype == "tf32" else 64), 128)
        assert c[0].shape[0] == n and c[0].shape[1] >= m
    else:
        assert is_map(c, c[0], (64, wide), wide * shape.size)
        assert c[0].shape[0] == m and c[0].shape[1] >= n
    assert rows and counters and (col_idx or not p.device().a.blocks)
    copies = [x for x in bound.steps if x is not step]
    assert all(x[0] in pitch.ENTRIES.values() for x in copies)
    assert bound.result() is p.device().c and bound.prepare_ms == 1.25 and bound.prepare_bytes > 0


#: n = 1 of a row-major matrix lies as a column-major one does, but NumPy and CuPy say that its lines are 2 bytes apart.
@pytest.mark.parametrize("layout", ["source", "linear", "row"])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 1, 64), (1, 64, 1), (1, 1, 1), (128, 1, 64), (8, 3, 8)])
def test_lines_of_thin_matrices_are_what_tma_takes(loaded, m, n, k, layout):
    p = on_fake_gpu(room.problem(m, n, k, 1, layout=layout))
    dense = lines.lines(p.device(), H200)
    for array in (dense.b, dense.c):
        assert array.data.ptr % 16 == array.strides[0] % 16 == array.shape[1] % 8 == 0
        assert array.strides[0] >= 2 * array.shape[1]
    assert (dense.b.shape[0] == n) == (family.order(p.device().b) == "F" or n == k)


@pytest.mark.parametrize("c_order", ["source", "linear"])
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("name", [*published.KERNELS, "opt5_n8", "opt5_n136", "opt5_n248"])
def test_a_rung_is_launched_for_every_tile(loaded, name, dtype, c_order):
    for m, n, k in ((300, 1536, 200), (301, 77, 133), (64, 1, 64)):
        p = on_fake_gpu(room.problem(m, n, k, 0.3, dtype=dtype, layout=c_order))
        bound = room.bind(name, p, H200)
        (step,) = [s for s in bound.steps if s[0].startswith("opt")]
        entry, how, arguments = step
        rows, size = ceil(m / 64), family.DTYPES[dtype][1]
        if name == "opt0":
            assert how.grid == (rows, ceil(n / 128)) and how.block == 128
            continue
        kernel, width = entry.split("<")[0], int(entry.rstrip(">").split(", ")[2])
        assert kernel == name.split("_n")[0]
        columns = width * (2 if kernel in published.PAIRS else 1)
        assert how.shmem_size == loaded[-1][3] <= MOST - family.STATIC
        panels = ceil(n / columns)
        if kernel in published.PERSISTENT:
            assert how.grid == min(132, rows * panels)
        elif kernel == "opt7":
            assert how.grid == (rows, ceil(panels / 2)) and how.cluster == (1, 2, 1)
        else:
            assert how.grid == (rows, panels)
        if kernel != "opt1":
            assert is_map(arguments[0], arguments[0][0], (64, 128 // size), 128)
            assert is_map(arguments[1], arguments[1][0], (width, 128 // size), 128)
        if kernel not in ("opt1", "opt7"):
            shape = family.shape_of(p)
            most = published.widest(kernel, size)
            wide = family.box_columns(width, size, shape.c_order, most)
            c = arguments[2]
            if shape.c_order == "F":
                assert is_map(c, c[0], (wide, 32 if size == 4 else 64), 128)
            else:
                assert is_map(c, c[0], (64, wide), wide * size if wide * size > 16 else 0)


@pytest.mark.parametrize("name", ["opt0", "opt1", "opt2", "opt3", "opt4", "opt5", "opt7", "opt5_n8"])
def test_more_panels_than_a_grid_has_are_refused(loaded, monkeypatch, name):
    """n = 2^20 + 16 is 65537 panels of 16 columns, and no wider one pads it as little."""
    n = 2**20 + 16
    assert published.wgmma_n(n) == 8 and published.wgmma_n(n, 1) == 16
    n = 2**23 if name == "opt0" else n
    p = room.problem(64, n, 1, 0)
    thin = on_fake_gpu(room.problem(64, 8, 64, 0))
    p = replace(p, make_device=lambda: thin.device())
    says([name, f"n={n}", "at most 65535", "use unit_ring"], lambda: room.bind(name, p, H200))
    assert not [x for x in loaded if x[1].startswith("opt")]
    for name in published.PERSISTENT:
        assert room.bind(name, replace(p, n=2**20 + 16), H200)


def test_what_the_sources_kernels_do_not_take_says_who_does(loaded):
    for name in (*published.KERNELS, "opt5_n64"):
        for block in (32, 128, (64, 128)):
            p = on_fake_gpu(room.problem(130, 64, 130, 0.5, block=block))
            says([name, "64 x 64", "use unit_ring"], lambda name=name, p=p: room.bind(name, p, H200))
    row = on_fake_gpu(room.problem(130, 64, 130, 0.5, layout="row"))
    for name in [*published.KERNELS][1:]:
        says([name, "column-major", "use unit_ring"], lambda name=name: room.bind(name, row, H200))
    assert room.bind("opt0", row, H200), "takes both orders"
    says(["'opt8'", "opt0, opt1"], lambda: room.bind("opt8", row, H200))


@pytest.mark.parametrize("device", [A100, B200], ids=lambda device: device.name)
def test_a_gpu_without_wgmma_is_refused_and_told_what_to_use(loaded, device):
    p = on_fake_gpu(room.problem(130, 64, 130, 0.5))
    for name in {*room.VARIANTS} - {
        "opt0",
        "blocks_mma",
        "union_rows",
        "union_half",
        "auto_fp32",
        "auto_tf32",
        "auto_half",
    }:
        says([name, "wgmma", "use blocks_mma"], lambda name=name: room.bind(name, p, device))
    assert not loaded
    assert room.bind("opt0", p, device)


def test_no_source_is_left_over():
    used = {kernel.source.name for kernel in room.VARIANTS.values()}
    used |= {layer.GATED.name, planning.SOURCE.name}
    assert {path.name for path in family.HERE.glob("*.cu")} == used
    assert compiled.LOCKED and used >= {f"opt{i}.cu" for i in range(8)}
