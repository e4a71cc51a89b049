#!/bin/sh
# Makes the secrets that compose.yaml reads, once; those that are there stay as they are.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
[ -s secrets/postgres_password ] || od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > secrets/postgres_password
[ -s secrets/store_url ] \
    || printf 'postgresql://arclog:%s@postgres/arclog' "$(cat secrets/postgres_password)" > secrets/store_url
# Opens the credentials that are kept sealed in the database: back it up, elsewhere than the database.
[ -s secrets/secrets_key ] || head -c 32 /dev/urandom | base64 > secrets/secrets_key
# Compose mounts them as they are, and the containers' users are not yours. The folder keeps others out.
chmod 0444 secrets/postgres_password secrets/store_url secrets/secrets_key
