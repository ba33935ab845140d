#!/bin/bash
# node.sh [OPTION...] HOST COMMAND...
#
# What ssh is for the launchers of nodes.c: another node on this machine, with a host name and a
# /dev/shm of its own, and the environment of a login. An LD_PRELOAD that is empty is one: where
# there is none `plfs run` gives its own back.
while [[ $1 = -* ]]; do shift; done
host=$1; shift
user=; unshare -mu true 2> /dev/null || user=-Ur
exec env -i LD_PRELOAD= HOME="$HOME" PATH=/usr/bin:/bin unshare $user -mu bash -c 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && unset LD_PRELOAD && exec bash -c "$1"' "$host" "$*"
