"""Names of trials where there is no room for all of them: cut so that they can still be told apart. Pure.

The rule of the panel (`shortened` in panel/frontend/src/learning.js): a trial is called the same on each screen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["family_of", "shortened"]

_SPARE = 4
"""Letters more than asked for, before names are cut in the midst of a number."""

_LEAST = 18
"""As many in any case: three values tell trials apart, and halves of names do not."""

_Parts = Sequence[str]


def family_of(name: str) -> str:
    """Return what the names of one sweep begin with: "train-" of "train-lr0.1"."""
    return _parts(name)[0]


def shortened(names: Sequence[str], most: int) -> dict[str, str]:
    """Return by name what to write of it: no more letters than asked for, as far as names stay apart by that.

    What the trials of a sweep share gives way first, then what its parameters are called; numbers are not cut.

    Args:
        names: All names that are shown together.
        most: Letters, at least 4.

    Example:
        >>> shortened(["train-lr0.1-width32", "train-lr0.01-width512"], 14)
        {'train-lr0.1-width32': '…lr0.1-w32', 'train-lr0.01-width512': '…lr0.01-w512'}
    """
    names = list(dict.fromkeys(names))
    families: dict[str, list[_Parts]] = {}
    for name in names:
        families.setdefault(family_of(name), []).append(_parts(name))
    valued = {first: _valued_names(its, most) for first, its in families.items()}
    first_cut = {}
    for name in names:
        first = family_of(name)
        first_cut[name] = valued[first].get(name) or _without_shared(name, families[first], most)
    alike: dict[str, list[str]] = {}
    for name, short in first_cut.items():
        alike.setdefault(short, []).append(name)
    apart = {n: _from_where(n, alike[s], most) if len(alike[s]) > 1 else s for n, s in first_cut.items()}
    counts = Counter(apart.values())
    return {n: _apart_from(n, names, most) if counts[short] > 1 else short for n, short in apart.items()}


def _parts(name: str) -> list[str]:
    return re.findall(r"[^-_ /,=]*[-_ /,=]|[^-_ /,=]+", name) or [""]


def _without_shared(name: str, family: Sequence[_Parts], most: int) -> str:
    """Return a name without what its family begins with, cut where that is too long, too."""
    if len(name) <= most:
        return name
    if same := _alike(family):
        rest = "…" + "".join(_parts(name)[same:])
        return f"…{rest[1 - most :]}" if len(rest) > most else rest  # behind it the ends tell more
    return f"{name[: (most + 1) // 2]}…{name[1 - most // 2 :]}"


def _valued_names(family: Sequence[_Parts], most: int) -> Mapping[str, str]:
    """Return the names of a sweep, by name, where they are too long even without what all begin with.

    Of "train-lr0.03-net-mlp" that is first "…lr0.03…mlp", then parameters by their first letter, then values alone.
    Empty: they fit, or are not made alike.
    """
    same, wholes = _alike(family), ["".join(parts) for parts in family]
    rests = ["…" + "".join(parts[same:]) if same else "".join(parts) for parts in family]
    fit = all(len(whole) <= most or len(rest) <= most for whole, rest in zip(wholes, rests, strict=True))
    if fit or len(family) < 2 or any(len(parts) != len(family[0]) for parts in family):
        return {}
    shared = [_shared([parts[k] for parts in family]) for k in range(len(family[0]))]
    calls: tuple[Callable[[str], str], ...] = (
        lambda name: name,
        lambda name: name[:1] if len(name) > 2 else name,
        lambda _: "…",
    )
    ways = [[_valued(parts, shared, called) for parts in family] for called in calls]
    found = next((way for way in ways if _fit(way, most)), None)
    if found is None and _fit(ways[-1], max(_LEAST, most + _SPARE)):
        found = ways[-1]
    return dict(zip(wholes, found, strict=True)) if found else {}


def _fit(written: Collection[str], room: int) -> bool:
    return len(set(written)) == len(written) and all(len(name) <= room for name in written)


def _valued(parts: _Parts, shared: Sequence[int], called: Callable[[str], str]) -> str:
    """Return a name without the parts that all share; `called`: what stands for a parameter before its value."""
    text = "".join(
        "…" if same == len(part) else (called(part[:same]) if same else "") + part[same:]
        for part, same in zip(parts, shared, strict=True)
    )
    return re.sub(r"[-_ /,=…]+\Z", "", re.sub(r"[-_ /,=]*…+", "…", text))


def _shared(parts: Sequence[str]) -> int:
    """Return how many letters these begin with: all of them, or the name of a parameter before its number."""
    if len(set(parts)) == 1:
        return len(parts[0])
    name = re.match(r"[^0-9.+-]*", parts[0])
    size = name.end() if name else 0
    alike = all(part[:size] == parts[0][:size] and re.match(r"[0-9.+-]", part[size:]) for part in parts)
    return size if alike else 0


def _alike(family: Sequence[_Parts]) -> int:
    """Return how many parts several names begin with, each with a part of its own left."""
    same = 0
    while len(family) > 1 and all(len(p) > same + 1 and p[same] == family[0][same] for p in family):
        same += 1
    return same


def _from_where(name: str, others: Sequence[str], most: int) -> str:
    """Return a name from the letter on by which it differs from others."""
    at = 0
    while at < len(name) and all(other[at : at + 1] == name[at] for other in others):
        at += 1
    left = name[max(0, min(at - 1, len(name) - most + 1)) :]
    return f"…{left}" if len(left) < most else f"…{left[: most - 2]}…"


def _apart_from(name: str, names: Sequence[str], most: int) -> str:
    """Return a name's end, else its beginning and end, as little longer than asked for as tells it from all others."""

    def end(one: str, letters: int) -> str:
        return one if len(one) <= letters else f"…{one[1 - letters :]}"

    def both(one: str, letters: int) -> str:
        before, after = letters // 2, (letters - 1) // 2
        return one if len(one) <= letters else f"{one[:before]}…{one[-after:]}"

    for letters in range(most, len(name)):
        for cut in (end, both):
            short = cut(name, letters)
            if not any(other != name and cut(other, letters) == short for other in names):
                return short
    return name
