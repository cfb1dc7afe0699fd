"""The classes of tfdistr's errors, by the kinds that R's conditions have in their class."""

from tfdistr import errors

#: The class of R is "tfdistr_error_" and the kind.
KINDS = {
    kind.kind: name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.TfdistrError)
}
