"""Every kind of image becomes the RGB a person would expect, or is refused with its reason and without harm."""

from __future__ import annotations

import contextlib
import io
import resource
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

from driftline.streams.store.decode import (
    MAX_PIXELS,
    UndecodableError,
    decode,
    encode,
    pixels,
    prepare,
    to_raw,
)
from driftline.types import BadSampleError, ImageArray


def smooth(height: int, width: int) -> ImageArray:
    """A picture with large shapes, which JPEG keeps almost exactly."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([255 * x / width, 255 * y / height, 127 + 100 * np.sin(x / 30)], axis=2).astype(np.uint8)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def close(a: ImageArray, b: ImageArray, limit: float) -> bool:
    return a.shape == b.shape and float(np.abs(a.astype(int) - b.astype(int)).mean()) <= limit


PICTURE = smooth(96, 128)
RGB = Image.fromarray(PICTURE)


@pytest.mark.parametrize(
    ("payload", "limit"),
    [
        (saved(RGB, "JPEG", quality=95), 3.0),
        (saved(RGB, "JPEG", quality=95, progressive=True), 3.0),
        (saved(RGB, "PNG"), 0.0),
        (saved(RGB, "WEBP", lossless=True), 0.0),
        (saved(RGB, "BMP"), 0.0),
        (saved(RGB, "TIFF"), 0.0),
        (saved(RGB.quantize(256), "PNG"), 12.0),
        (saved(RGB.convert("RGBA"), "PNG"), 0.0),
        (saved(RGB.convert("CMYK"), "JPEG", quality=95), 4.0),
        (saved(RGB.convert("CMYK"), "TIFF"), 1.0),
        (saved(RGB, "GIF", save_all=True, append_images=[Image.new("RGB", RGB.size)]), 14.0),
        (saved(RGB, "JPEG", quality=95) + b"\0\0trailing", 3.0),
    ],
    ids=[
        "jpeg",
        "progressive",
        "png",
        "webp",
        "bmp",
        "tiff",
        "palette",
        "alpha",
        "cmyk-jpeg",
        "cmyk-tiff",
        "animated",
        "trailing",
    ],
)
def test_colour_images_of_all_kinds_give_the_same_picture(payload: bytes, limit: float) -> None:
    assert close(decode(payload, position=0), PICTURE, limit)


def test_grey_and_sixteen_bit_images_become_grey_rgb() -> None:
    grey = np.asarray(RGB.convert("L"))
    expected = np.repeat(grey[:, :, None], 3, axis=2)
    assert close(pixels(saved(Image.fromarray(grey), "JPEG", quality=95)), expected, 3.0)
    assert close(pixels(saved(Image.fromarray(grey), "PNG")), expected, 0.0)
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    assert close(pixels(saved(deep, "PNG")), expected, 0.0)
    assert close(pixels(saved(deep, "TIFF")), expected, 0.0)
    black_and_white = np.asarray(RGB.convert("1")).astype(np.uint8) * 255
    assert close(
        pixels(saved(RGB.convert("1"), "PNG")), np.repeat(black_and_white[:, :, None], 3, axis=2), 0.0
    )


def test_what_is_transparent_turns_white() -> None:
    layer = Image.new("RGBA", (4, 4), (255, 0, 0, 0))
    layer.putpixel((1, 2), (0, 0, 255, 255))
    got = pixels(saved(layer, "PNG"))
    assert got[2, 1].tolist() == [0, 0, 255]
    assert got[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xd8\xff",
        b"<html><body>gone</body></html>",
        saved(RGB, "JPEG")[:700],
        saved(RGB, "PNG")[:200],
        saved(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
        bytes(1000),
    ],
    ids=["empty", "stub", "html", "cut-jpeg", "cut-png", "float", "postscript", "zeros"],
)
def test_what_is_no_usable_image_is_a_bad_sample(payload: bytes) -> None:
    with pytest.raises(BadSampleError) as caught:
        decode(payload, position=41)
    assert caught.value.position == 41
    assert caught.value.reason


def png_claiming(width: int, height: int) -> bytes:
    """A tiny PNG whose header promises many pixels and whose body would inflate to them."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(10**6), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg_claiming(width: int, height: int) -> bytes:
    data = bytearray(saved(RGB, "JPEG"))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize(
    "payload",
    [
        png_claiming(20000, 20000),
        png_claiming(10000, 9000),
        jpeg_claiming(65000, 65000),
        png_claiming(2**31 - 1, 1),
    ],
)
def test_a_decompression_bomb_takes_no_memory(payload: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadSampleError, match=r"pixels|limit|bomb"):
        decode(payload, position=0)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 50_000
    assert MAX_PIXELS < 10000 * 9000


@settings(deadline=None, max_examples=300)
@given(
    kind=st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"]),
    edits=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=12),
    keep=st.floats(0.0, 1.0),
)
def test_damaged_bytes_give_an_image_or_a_bad_sample(
    kind: str, edits: list[tuple[float, int]], keep: float
) -> None:
    data = bytearray(saved(Image.fromarray(smooth(20, 24)), kind))
    for where, value in edits:
        data[int(where * len(data))] = value
    for use in [bytes(data), bytes(data[: int(keep * len(data))])]:
        try:
            image = decode(use, position=1)
        except BadSampleError:
            continue
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert image.dtype == np.uint8


@settings(deadline=None, max_examples=200)
@given(payload=st.binary(max_size=300))
def test_arbitrary_bytes_never_do_more_than_fail(payload: bytes) -> None:
    for start in [
        b"",
        b"\xff\xd8\xff\xe0",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"RIFF\x10\0\0\0WEBPVP8 ",
        b"BM",
        b"II*\0",
    ]:
        with contextlib.suppress(UndecodableError):
            pixels(start + payload)


@pytest.mark.parametrize(
    ("min_side", "expected"),
    [(None, (512, 1024)), (512, (512, 1024)), (257, (512, 1024)), (256, (256, 512)), (40, (64, 128))],
)
def test_reduced_decoding_keeps_the_short_side_long_enough(
    min_side: int | None, expected: tuple[int, int]
) -> None:
    image = pixels(encode(smooth(512, 1024)), min_side=min_side)
    assert image.shape[:2] == expected


def test_prepare_shrinks_the_short_side_and_keeps_the_picture() -> None:
    for shape in [(300, 400), (400, 300), (1000, 1400), (257, 256), (256, 9000)]:
        made = pixels(prepare(encode(smooth(*shape), quality=98), short_side=256))
        assert min(made.shape[:2]) == 256
        assert made.shape[1] / made.shape[0] == pytest.approx(shape[1] / shape[0], rel=0.01)
        plain = np.asarray(
            Image.fromarray(smooth(*shape)).resize((made.shape[1], made.shape[0]), Image.Resampling.LANCZOS)
        )
        assert close(made, plain, 3.0)


def test_prepare_never_enlarges_and_keeps_a_small_jpeg_as_it_is() -> None:
    small = encode(smooth(100, 180))
    assert prepare(small, short_side=256) == small
    from_png = prepare(saved(Image.fromarray(smooth(100, 180)), "PNG"), short_side=256)
    assert from_png[:3] == b"\xff\xd8\xff"
    assert pixels(from_png).shape == (100, 180, 3)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_orientation_marks_are_baked_in(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    payload = saved(
        Image.fromarray(smooth(64, 96)), kind, exif=exif, **({"quality": 98} if kind == "JPEG" else {})
    )
    with Image.open(io.BytesIO(payload)) as opened:
        upright = np.asarray(ImageOps.exif_transpose(opened))
    assert close(pixels(prepare(payload, short_side=256)), upright, 3.0)
    square = np.frombuffer(to_raw(payload, 64), np.uint8).reshape(64, 64, 3)
    top, left = (upright.shape[0] - 64) // 2, (upright.shape[1] - 64) // 2
    assert close(square, upright[top : top + 64, left : left + 64], 2.0)


def test_raw_takes_the_centre_square_whatever_the_size() -> None:
    exact = smooth(32, 32)
    assert to_raw(exact, 32) == exact.tobytes()
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 200
    assert to_raw(wide, 32) == bytes([200]) * (32 * 32 * 3)
    assert len(to_raw(encode(smooth(10, 14)), 32)) == 32 * 32 * 3
    assert len(to_raw(encode(smooth(700, 900)), 32)) == 32 * 32 * 3


def test_a_cut_jpeg_is_not_taken_for_whole() -> None:
    with pytest.raises(UndecodableError):
        prepare(encode(smooth(300, 300))[:-300], short_side=64)
