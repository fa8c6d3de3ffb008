# What the scripts of this folder share: sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# SQLite files on tmpfs are refused, so the folders that tests make lie on a disk.
[ "$(stat -f -c %T "${TMPDIR:-/tmp}" 2>/dev/null)" != tmpfs ] || { mkdir -p "$target/tmp"; export TMPDIR=$target/tmp; }
passed=0 failed=0 skipped=0

# The Linux systems that packages are built for, and Rust's name of each.
platforms=(linux-x86_64 linux-x86_64-musl linux-aarch64 linux-aarch64-musl)
triple() { local machine=${1#linux-}; case $1 in *-musl) echo "${machine%-musl}-unknown-linux-musl" ;; *) echo "$machine-unknown-linux-gnu" ;; esac; }

# need COMMAND PACKAGE: installs the package where the command is missing.
need() {
    command -v "$1" >/dev/null && return
    local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    # `RUNLEVEL=1 need …`: a package that brings a service does not start it; sudo would drop the variable.
    sudo="$sudo env ${RUNLEVEL:+RUNLEVEL=$RUNLEVEL}"
    $sudo apt-get install -y -qq "$2" >/dev/null 2>&1 || { $sudo apt-get update -qq; $sudo apt-get install -y -qq "$2" >/dev/null; }
}

# faketime_library: prints the path of libfaketime's library for programs with threads.
faketime_library() { dpkg -L libfaketime | grep 'libfaketimeMT\.so'; }

# nightly COMPONENT...: installs Rust's nightly toolchain with these components; prints a line if that fails.
nightly() {
    local component missing=
    for component in "$@"; do
        rustup component list --installed --toolchain nightly 2>/dev/null | grep -q "^$component" || missing=1
    done
    [ -z "$missing" ] || rustup toolchain install nightly --profile minimal ${*/#/-c } >/dev/null 2>&1 || {
        echo "not run: Rust's nightly toolchain with $* cannot be installed on this machine"
        skipped=$((skipped + 1)); return 1
    }
}

# check NAME COMMAND...: one line, with the seconds from five on, and the command's output if it failed.
check() {
    local name=$1 output started=$SECONDS took=; shift
    if output=$("$@" 2>&1); then
        [ $((SECONDS - started)) -lt 5 ] || took=" ($((SECONDS - started)) s)"
        echo "ok $name$took"; passed=$((passed + 1))
    else
        echo "FAILED $name"; failed=$((failed + 1)); printf '%s\n' "$output" | tail -n 40 | sed 's/^/    /'
    fi
}

# with_servers COMMAND...: runs the command with a private MariaDB, PostgreSQL and Redis; each script starts its server and
# runs the next.
with_servers() { "$root/ci/servers/mariadb" run "$root/ci/servers/postgres" run "$root/ci/servers/redis" run "$@"; }

# summary: prints the last line; succeeds if nothing failed.
summary() {
    local more=; [ "$skipped" = 0 ] || more=", $skipped skipped"
    echo "$passed passed, $failed failed$more"
    [ "$failed" = 0 ]
}

# born PID: when this process began, in the kernel's ticks.
born() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
# lives PID BORN: whether the process is still the one that began then. A free pid is reused for other processes and for
# their threads; it may belong to another user, so `kill -0` is no test.
lives() { [ -n "$2" ] && [ "$(born "$1")" = "$2" ]; }

# free_port HOLDER: prints a free port that no other server of these scripts is about to use: each port is recorded with the
# folder of its holder, as long as that folder exists.
ports=/tmp/keymill-ports
free_port() {
    mkdir -p -m 1777 "$ports"
    [ -e "$ports/lock" ] || : >"$ports/lock"
    ( # Two at once would take the same port, each after the other's entry is gone.
        flock 9
        for port in $(shuf -i 20000-32000 -n 200); do
            [ ! -d "$(readlink "$ports/$port")" ] || continue
            rm -f "$ports/$port" 2>/dev/null && ln -s "$1" "$ports/$port" 2>/dev/null || continue
            (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; exit; }
        done
        echo "no port from 20000 to 32000 is free" >&2; exit 1
    ) 9<"$ports/lock"
}
# leave_ports HOLDER: releases the ports.
leave_ports() { find "$ports" -lname "$1" -delete 2>/dev/null || true; } # others release theirs meanwhile
