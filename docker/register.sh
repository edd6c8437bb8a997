#!/bin/sh
# Posts the MariaDB connectors of debezium/ to the Connect of compose.yaml, with its host names in them.
set -eu
for file in mariadb-source mariadb-outbox; do
  status=$(sed -e 's/"database.hostname": "localhost"/"database.hostname": "mariadb"/' -e 's/"localhost:9092"/"kafka:9092"/' \
    "/debezium/$file.json" |
    curl -sS -o /tmp/answer -w '%{http_code}' -H 'Content-Type: application/json' --data @- http://connect:8083/connectors)
  case $status in
  201) echo "$file: registered" ;;
  409) echo "$file: is registered already" ;;
  *) echo "$file: $status $(cat /tmp/answer)" >&2; exit 1 ;;
  esac
done
