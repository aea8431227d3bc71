"""How is a log changed here and there, so that what is unusual stands among what is usual?"""


def changed(lines: list[str], edits: list[tuple[int, str | int | None, bool]]) -> list[str]:
    """Put in a line, put it in another one's place, take one away; cut its end off, or put it there twice."""
    for place, odd, other in edits:
        if isinstance(odd, int):
            lines[place : place + 1] = [one + one[odd:] if other else one[:odd] for one in lines[place : place + 1]]
        else:
            lines[place : place + (other or odd is None)] = [] if odd is None else [odd]
    return lines
