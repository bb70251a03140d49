"""Payload bytes in, pixels out; and back again for the store.

`decode` turns any payload into a height x width x 3 uint8 array. `prepare` makes the JPEG the store keeps,
`to_raw` the square of bare pixels it keeps for small images. The header is read and the size bounded before
memory for pixels is taken. simplejpeg and Pillow release the interpreter's lock, so threads decode in parallel.
"""

from __future__ import annotations

import io
import struct

import numpy as np
import simplejpeg
from PIL import ExifTags, Image, UnidentifiedImageError

from driftline.types import BadSampleError, ImageArray

MAX_PIXELS = 2**26
"""Images with more pixels are refused: 8192 x 8192 is 200 MB once decoded."""
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
"""What Pillow may try; nothing that starts another program (EPS) is among them."""
QUALITY = 90

_PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    struct.error,
    Image.DecompressionBombError,
)
"""What Pillow's readers raise on damaged files."""


class UndecodableError(ValueError):
    """The bytes are no image that can be used; the message is the reason."""


def decode(payload: bytes, *, position: int, min_side: int | None = None) -> ImageArray:
    """The image in a payload as height x width x 3, or BadSampleError with the reason.

    With `min_side` a JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as its short side stays at
    least that long. Orientation marks are not applied: the store's images are upright already.

    >>> decode(encode(np.zeros((6, 8, 3), np.uint8)), position=0).shape
    (6, 8, 3)
    >>> decode(b"", position=3)
    Traceback (most recent call last):
    driftline.types.BadSampleError: sample 3: empty payload (0 bytes)
    """
    try:
        return pixels(payload, min_side=min_side)
    except UndecodableError as error:
        raise BadSampleError(position, str(error)) from None


def encode(image: ImageArray, *, quality: int = QUALITY) -> bytes:
    """A JPEG of an image.

    >>> encode(np.zeros((4, 4, 3), np.uint8))[:2].hex()
    'ffd8'
    """
    data: bytes = simplejpeg.encode_jpeg(
        np.ascontiguousarray(image), quality=quality, colorspace="RGB", colorsubsampling="420"
    )
    return data


def prepare(payload: bytes | ImageArray, *, short_side: int, quality: int = QUALITY) -> bytes:
    """The JPEG the store keeps: upright, its short side at most `short_side` pixels (nothing is enlarged).

    An upright JPEG that is small enough already is kept byte for byte, once it has proved decodable.

    >>> big = encode(np.zeros((100, 200, 3), np.uint8))
    >>> pixels(prepare(big, short_side=50)).shape
    (50, 100, 3)
    """
    if isinstance(payload, np.ndarray):
        return encode(_shrunk(payload, short_side), quality=quality)
    orientation = _orientation(payload)
    image = pixels(payload, min_side=short_side)
    small = _shrunk(image, short_side)
    if small is image and orientation == 1 and _is_jpeg(payload) and _full_size(payload, image):
        return payload
    return encode(_upright(small, orientation), quality=quality)


def to_raw(payload: bytes | ImageArray, size: int) -> bytes:
    """The centre square of an image as size x size x 3 bytes; a smaller one is enlarged.

    >>> len(to_raw(encode(np.zeros((40, 60, 3), np.uint8)), 32)) == 32 * 32 * 3
    True
    """
    if isinstance(payload, np.ndarray):
        image, orientation = payload, 1
    else:
        image, orientation = pixels(payload, min_side=size), _orientation(payload)
    height, width = image.shape[:2]
    if height != size or width != size:
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        square = np.ascontiguousarray(image[top : top + side, left : left + side])
        resized = Image.fromarray(square).resize((size, size), Image.Resampling.BILINEAR, reducing_gap=2.0)
        image = np.asarray(resized)
    return _upright(image, orientation).tobytes()


def pixels(payload: bytes, *, min_side: int | None = None) -> ImageArray:
    """As `decode`, for bytes that have no position yet: raises UndecodableError with the reason.

    >>> pixels(b"<html>")
    Traceback (most recent call last):
    driftline.streams.store.decode.UndecodableError: not an image (starts with 3c68746d6c3e)
    """
    if not payload:
        raise UndecodableError("empty payload (0 bytes)")
    if _is_jpeg(payload):
        image = _by_simplejpeg(payload, min_side)
        if image is not None:
            return image
    return _by_pillow(payload)


def _is_jpeg(payload: bytes) -> bool:
    return payload[:3] == b"\xff\xd8\xff"


def _by_simplejpeg(payload: bytes, min_side: int | None) -> ImageArray | None:
    """Pixels of an ordinary JPEG; None when Pillow should have a look (CMYK, harmless oddities)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(payload)
        if colorspace in ("CMYK", "YCCK"):
            return None
        _check_size(width, height)
        factor = _reduction(min(height, width), min_side)
        image: ImageArray = simplejpeg.decode_jpeg(
            payload, "RGB", min_height=-(-height // factor), min_width=-(-width // factor)
        )
    except UndecodableError:
        raise
    except ValueError:
        return None
    return image


def _reduction(side: int, min_side: int | None) -> int:
    """By how much a JPEG's transform may shrink it; other factors than powers of two are slow.

    >>> [_reduction(side, 256) for side in (200, 511, 512, 3000)], _reduction(512, None)
    ([1, 1, 2, 8], 1)
    """
    if min_side is None:
        return 1
    return next((factor for factor in (8, 4, 2) if side >= factor * min_side), 1)


def _by_pillow(payload: bytes) -> ImageArray:
    try:
        with Image.open(io.BytesIO(payload), formats=FORMATS) as opened:
            _check_size(*opened.size)
            return _rgb(opened)
    except UndecodableError:
        raise
    except UnidentifiedImageError:
        raise UndecodableError(f"not an image (starts with {payload[:8].hex()})") from None
    except _PILLOW_ERRORS as error:
        raise UndecodableError(f"undecodable: {error}") from None


def _check_size(width: int, height: int) -> None:
    if width < 1 or height < 1 or width * height > MAX_PIXELS:
        raise UndecodableError(f"{width} x {height} pixels; the limit is {MAX_PIXELS} in all")


def _rgb(image: Image.Image) -> ImageArray:
    """First frame of any Pillow image as RGB; what is transparent turns white, 16 bits become 8."""
    if image.mode.startswith("I"):
        deep = np.asarray(image).astype(np.int64)
        grey = (deep.clip(0, 65535) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise UndecodableError("pixels are floating-point numbers; store them as 8-bit RGB")
    if "A" in image.mode or "a" in image.mode or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return np.asarray(image.convert("RGB"))


def _orientation(payload: bytes) -> int:
    """The EXIF orientation mark, 1 to 8; 1 (upright) where there is none."""
    if b"Exif" not in payload[:65536] and b"eXIf" not in payload:
        return 1
    try:
        with Image.open(io.BytesIO(payload), formats=FORMATS) as opened:
            mark = opened.getexif().get(ExifTags.Base.Orientation, 1)
    except _PILLOW_ERRORS:
        return 1
    return mark if isinstance(mark, int) and 1 <= mark <= 8 else 1


def _upright(image: ImageArray, orientation: int) -> ImageArray:
    """The image as it should be seen, from its stored pixels and EXIF mark."""
    if orientation in (5, 6, 7, 8):
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image


def _shrunk(image: ImageArray, short_side: int) -> ImageArray:
    height, width = image.shape[:2]
    if min(height, width) <= short_side:
        return image
    if height < width:
        size = (max(1, round(width * short_side / height)), short_side)
    else:
        size = (short_side, max(1, round(height * short_side / width)))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0))


def _full_size(payload: bytes, image: ImageArray) -> bool:
    """True when nothing was shrunk on the way in (by the transform or otherwise)."""
    try:
        height, width, colorspace, _ = simplejpeg.decode_jpeg_header(payload)
    except ValueError:
        return False
    return (height, width) == image.shape[:2] and colorspace not in ("CMYK", "YCCK")
