#!/usr/bin/env python3
"""Prints the SQL of a small table with the columns of tests/types/*.toml, for capture-fixtures.sh.

  sql.py mariadb|postgres create    the table types_all
  sql.py mariadb|postgres changes   two rows with a value in every column and one of NULLs, an update of all columns, a
                                    change of primary key and a delete: 7 changes, two tombstones
"""
import pathlib
import sys
import tomllib

source, what = sys.argv[1:]
table = tomllib.loads((pathlib.Path(__file__).parent / f"{source}.toml").read_text())
# Kilobytes would only make the fixtures large.
columns = [column for column in table["columns"] if not column.get("big")]


def value(column, round):
    values = [value for value in column["values"] if "REPEAT(" not in value] or ["NULL"]
    return values[round % len(values)]


if what == "create":
    for statement in table.get("types", []):
        print(statement.replace("EXTENSION", "EXTENSION IF NOT EXISTS") + ";")
    declared = "".join(", {name} {type}".format(**column) for column in columns)
    print(f"CREATE TABLE types_all (id BIGINT PRIMARY KEY{declared});")
    if source == "postgres":
        print("ALTER TABLE types_all REPLICA IDENTITY FULL;")
else:
    names = "".join(", " + column["name"] for column in columns)
    for id in (1, 2):
        values = "".join(f", {value(column, id - 1)}" for column in columns)
        print(f"INSERT INTO types_all (id{names}) VALUES ({id}{values});")
    print("INSERT INTO types_all (id) VALUES (3);")
    set = ", ".join("{} = {}".format(column["name"], value(column, 2)) for column in columns)
    print(f"UPDATE types_all SET {set} WHERE id = 1;")
    print("UPDATE types_all SET id = 4 WHERE id = 3;")
    print("DELETE FROM types_all WHERE id = 2;")
