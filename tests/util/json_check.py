"""Checks documents against a schema, and statements about them.

Standard input has a name, a document and an expression about it, `d`, for each; all end with a NUL byte. A line comes
back for each, `ok` or what is wrong. The last line is about the schema itself: `ok` and how many changed documents it
has judged as it should, or the ones that it has not.

The schema that is installed takes keys that it does not know, which are those of newer versions. Here it is made strict,
so that none is left out of it.
"""

import copy
import json
import sys

from jsonschema import Draft202012Validator

# These are there only if they are asked for.
OPTIONAL = {"lookups", "counters", "endpoints", "sa", "measurement"}


def once(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        raise ValueError("a key stands twice: %s" % keys)
    return dict(pairs)


def findings(validator, text, check):
    try:
        document = json.loads(text, object_pairs_hook=once)
    except ValueError as e:
        return None, "%s: %r" % (e, text[:200])
    errors = ["%s: %s" % (e.json_path, e.message[:200]) for e in validator.iter_errors(document)]
    if errors:
        return None, "; ".join(errors)
    if not eval(check, {"d": document}):
        return document, "not so: %s: %s" % (check, json.dumps(document)[:2000])
    return document, "ok"


def strict(schema):
    """The same schema, for keys that it names and no others."""
    if isinstance(schema, list):
        return [strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(inner) for key, inner in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        made["additionalProperties"] = False
    return made


def objects(value, path=()):
    """The place of every object in a value."""
    if isinstance(value, dict):
        yield path
        for key, inner in value.items():
            yield from objects(inner, path + (key,))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from objects(inner, path + (index,))


def changed(document, path, change):
    other = copy.deepcopy(document)
    inner = other
    for step in path:
        inner = inner[step]
    change(inner)
    return other


def changes(documents):
    """Documents with a key too many or too few, once for each kind of object, and whether that may be."""
    seen = set()
    for document in documents:
        for path in objects(document):
            inner = document
            for step in path:
                inner = inner[step]
            kind = (tuple(step for step in path if isinstance(step, str)), tuple(inner))
            if kind in seen:
                continue
            seen.add(kind)
            yield True, "%s + extra" % (path,), changed(document, path, lambda o: o.update(extra=1))
            for key in inner:
                if key not in OPTIONAL:
                    yield False, "%s - %s" % (path, key), changed(document, path, lambda o: o.pop(key))
                yield False, "%s: %s a list" % (path, key), changed(document, path, lambda o: o.update({key: [[]]}))


def main():
    with open(sys.argv[1]) as file:
        schema = json.load(file)
    Draft202012Validator.check_schema(schema)
    installed, validator = Draft202012Validator(schema), Draft202012Validator(strict(schema))
    fields = sys.stdin.buffer.read().decode().split("\0")
    documents = []
    for text, check in zip(fields[1::3], fields[2::3]):
        document, said = findings(validator, text, check)
        if document is not None:
            documents.append(document)
        print(said.replace("\n", " "))
    tried = [
        (what, validator.is_valid(document), installed.is_valid(document) != fits)
        for fits, what, document in changes(documents)
    ]
    wrong = [what for what, taken, misjudged in tried if taken or misjudged]
    print("wrong: %s" % wrong if wrong else "ok %d" % len(tried))


main()
