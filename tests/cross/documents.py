"""Documents that a schema of tfdistr allows, as hypothesis draws them."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tfdistr.schemas import load_schema

#: R has no text with NUL; "NA" is its missing value.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8).filter(lambda t: t != "NA")
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
LARGEST = 10**15 - 1  # of the whole numbers that jsonlite writes with all their digits


@cache
def documents(name: str, decimals: int | None) -> st.SearchStrategy[Any]:
    """Documents of a kind; their numbers have at most ``decimals`` decimals."""
    schema = load_schema(name)
    return _Drawn(schema, decimals).values(schema)


class _Drawn:
    def __init__(self, root: Any, decimals: int | None) -> None:
        self._root = root
        self._decimals = decimals

    def values(self, schema: Any) -> st.SearchStrategy[Any]:
        """Values of a part of the schema."""
        if "$ref" in schema:
            schema = {**self._part(schema["$ref"]), **schema}
            schema = {**schema, **_members(self._part(schema.pop("$ref")), schema)}
        if "allOf" in schema:  # the kinds of events
            return st.one_of(
                self.values(_of_kind(schema, rule["if"], self._part(rule["then"]["$ref"])))
                for rule in schema["allOf"]
            )
        if "const" in schema or "enum" in schema:
            return st.sampled_from(schema.get("enum", [schema.get("const")]))
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return st.one_of(getattr(self, f"_{kind}")(schema) for kind in types)

    def _part(self, reference: str) -> Any:
        return self._root["$defs"][reference.split("/")[-1]]

    def _null(self, schema: Any) -> st.SearchStrategy[None]:
        return st.none()

    def _boolean(self, schema: Any) -> st.SearchStrategy[bool]:
        return st.booleans()

    def _integer(self, schema: Any) -> st.SearchStrategy[int]:
        return st.integers(schema.get("minimum", -LARGEST), schema.get("maximum", LARGEST))

    def _number(self, schema: Any) -> st.SearchStrategy[float]:
        least = schema.get("minimum", schema.get("exclusiveMinimum"))
        if self._decimals is not None:
            unit = 10**self._decimals
            low = -LARGEST // unit if least is None else least * unit + ("exclusiveMinimum" in schema)
            return st.integers(low, LARGEST // unit).map(lambda whole: whole / unit)
        most = 1e300  # the largest numbers are infinite when they are rounded to 15 digits
        least = -most if least is None else least
        return st.floats(least, most, exclude_min="exclusiveMinimum" in schema)

    def _string(self, schema: Any) -> st.SearchStrategy[str]:
        if "pattern" not in schema:
            return TEXT
        return st.from_regex(schema["pattern"]).filter(lambda text: "\0" not in text)

    def _array(self, schema: Any) -> st.SearchStrategy[list[Any]]:
        if "prefixItems" in schema:
            return st.tuples(*map(self.values, schema["prefixItems"])).map(list)
        items = self.values(schema["items"])
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 4))

    def _object(self, schema: Any) -> st.SearchStrategy[dict[str, Any]]:
        known = {name: self.values(part) for name, part in schema.get("properties", {}).items()}
        required = set(schema.get("required", ()))
        fixed = st.fixed_dictionaries(
            {name: known.pop(name) for name in sorted(required & set(known))}, optional=known
        )
        if "additionalProperties" not in schema:
            return fixed
        names = st.from_regex(schema["propertyNames"]["pattern"]) if "propertyNames" in schema else NAMES
        others = self.values(schema["additionalProperties"])
        always = dict.fromkeys(sorted(required - set(schema.get("properties", {}))), others)
        more = st.dictionaries(names, others, max_size=3)
        return st.builds(lambda a, b, c: {**a, **b, **c}, more, st.fixed_dictionaries(always), fixed)


def _members(*schemas: Any) -> dict[str, Any]:
    """What several schemas of one object say of its members."""
    properties = {name: part for schema in schemas for name, part in schema.get("properties", {}).items()}
    required = {name: None for schema in schemas for name in schema.get("required", ())}
    return {"properties": properties, "required": list(required)} if properties else {}


def _of_kind(schema: Any, kind: Any, its: Any) -> Any:
    """The schema of the events of one kind."""
    common = {name: part for name, part in schema.items() if name != "allOf"}
    return {**common, **_members(schema, kind, its)}
