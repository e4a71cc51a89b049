#!/bin/sh
# What {{ … }} holds in a shell file is no template: values come by `env`.
printf "total: %s\n" "$TOTAL"
