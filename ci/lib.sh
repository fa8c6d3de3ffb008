# What the scripts of this folder share: sourced, not run.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# SQLite files on tmpfs are refused, so the folders that tests make lie on a disk.
[ "$(stat -f -c %T "${TMPDIR:-/tmp}" 2>/dev/null)" != tmpfs ] || { mkdir -p "$target/tmp"; export TMPDIR=$target/tmp; }
passed=0 failed=0 skipped=0
# The profile that packages are compiled with, and where it leaves them: `release`, or `dev` where `ci/test` wants no second compile.
profile=${KEYMILL_PROFILE:-release}
profile_folder=$target/${profile/%dev/debug}
# What `ci/test --all` noted of its last run: date, commit, counts.
full=$root/ci/last-full-run
# in_full WHAT: succeeds in `ci/test --all`, which sets KEYMILL_ALL; otherwise says on a line of its own what is left to it.
in_full() { [ -z "${KEYMILL_ALL:-}" ] || return 0; echo "left to ci/test --all: $1"; return 1; }
# released WHAT: packages are compiled as users get them; otherwise says on a line of its own what is left to `ci/test --all`.
released() { [ "$profile" = release ] || in_full "$1"; }
# last_full_commit: the commit of the last full run.
last_full_commit() { sed -n 's/^commit: //p' "$full" 2>/dev/null; }
# unchanged PATH...: these files are those of the last full run, which passed. Each path has to be there.
unchanged() {
    local commit; commit=$(last_full_commit)
    [ -n "$commit" ] && grep -q '^counts: .* 0 failed' "$full" && ! grep -q '^changed:' "$full" &&
        git -C "$root" ls-files --error-unmatch -- "$@" >/dev/null 2>&1 && git -C "$root" diff --quiet "$commit" -- "$@" 2>/dev/null &&
        [ -z "$(git -C "$root" ls-files --others --exclude-standard -- "$@")" ]
}

# unchanged_code PAGE...: the blocks of code of these pages are those of the last full run.
unchanged_code() {
    local page
    for page; do
        cmp -s <(git -C "$root" show "$(last_full_commit):$page" 2>/dev/null | code) <(code <"$root/$page") || return
    done
}
code() { awk '/^```/ { inside = !inside } inside'; }

# The Linux systems that packages are built for, and Rust's name of each.
platforms=(linux-x86_64 linux-x86_64-musl linux-aarch64 linux-aarch64-musl)
# The platforms of laptops, for which only packages are made: nothing here can run what is built for macOS.
laptops=(windows-x86_64 macos-aarch64 macos-x86_64)
triple() { local machine=${1#linux-}; case $1 in windows-*) echo "${1#windows-}-pc-windows-gnullvm" ;; macos-*) echo "${1#macos-}-apple-darwin" ;; *-musl) echo "${machine%-musl}-unknown-linux-musl" ;; *) echo "$machine-unknown-linux-gnu" ;; esac; }

# need COMMAND PACKAGE: installs the package where the command is missing.
need() {
    command -v "$1" >/dev/null && return
    local sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    # `RUNLEVEL=1 need …`: a package that brings a service does not start it; sudo would drop the variable.
    sudo="$sudo env ${RUNLEVEL:+RUNLEVEL=$RUNLEVEL}"
    $sudo apt-get install -y -qq "$2" >/dev/null 2>&1 || { $sudo apt-get update -qq; $sudo apt-get install -y -qq "$2" >/dev/null; }
}

# newest_java: the java of the highest version under the usual folder.
newest_java() {
    local home release
    for home in /usr/lib/jvm/*/; do
        [ -x "$home/bin/javac" ] && release=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$home/release" 2>/dev/null) && echo "${release:-0} $home/bin/java"
    done | sort -n | tail -n 1 | cut -d' ' -f2
}

# npm_locked NAME FOLDER [FLAG]: installs the packages that a lock file in the folder NAME names into FOLDER/node_modules, unless they are
# there. npm compares their hashes; none of their scripts runs.
npm_locked() {
    [ "$(cat "$2/node_modules/.locked" 2>/dev/null)" != "$(sha256sum <"$1/package-lock.json")" ] || return 0
    [ "$1" = "$2" ] || { mkdir -p "$2" && cp "$1"/package*.json "$2"; } || return
    (cd "$2" && npm ci --silent --ignore-scripts --no-audit --no-fund --no-update-notifier ${3:-}) && sha256sum <"$1/package-lock.json" >"$2/node_modules/.locked"
}

# pip_locked PYTHON NAME...: installs what ci/requirements/NAME.txt lists; pip compares the hashes.
pip_locked() {
    local python=$1 name files=(); shift
    for name in "$@"; do files+=(-r "$root/ci/requirements/$name.txt"); done
    "$python" -m pip install -q --disable-pip-version-check --require-hashes --only-binary :all: "${files[@]}"
}

# platform_tools: installs what compiles for other systems into the folder `tools`: zig, as a compiler of C, and maturin.
tools=$target/ci/platform-tools
platform_tools() {
    local versions
    versions=$(cat "$root"/ci/requirements/{maturin,platforms}.txt | sha256sum)
    [ "$(cat "$tools/versions" 2>/dev/null)" = "$versions" ] ||
        { python3 -m venv --clear "$tools" && pip_locked "$tools/bin/python" maturin platforms && echo "$versions" >"$tools/versions"; }
}
# zig brings the C library of every platform: the oldest glibc and macOS that the packages promise, musl, and Windows'.
oldest_glibc=2.17 oldest_macos=11.0
# zig_target PLATFORM: its name for zig.
zig_target() {
    local triple; triple=$(triple "$1")
    case $1 in
    windows-*) echo "${1#windows-}-windows-gnu" ;;
    macos-*) echo "${1#macos-}-macos.$oldest_macos" ;;
    *-musl) echo "${triple/-unknown/}" ;;
    *) echo "${triple/-unknown/}.$oldest_glibc" ;;
    esac
}
# zig_compiler PLATFORM: makes `$tools/zig-TRIPLE-cc` and `-ar`, which are zig's for the platform. C is compiled with them.
zig_compiler() {
    local triple; triple=$(triple "$1")
    # Asked for its version with a target of macOS, zig leaves an empty `a.o` in the current folder.
    printf '#!/bin/sh\n[ "$*" != --version ] || exec "%s" zig cc -- --version\nexec "%s" zig cc -- -g -fno-sanitize=all -target %s "$@"\n' \
        "$tools/bin/cargo-zigbuild" "$tools/bin/cargo-zigbuild" "$(zig_target "$1")" >"$tools/zig-$triple-cc"
    printf '#!/bin/sh\nexec "%s" zig ar -- "$@"\n' "$tools/bin/cargo-zigbuild" >"$tools/zig-$triple-ar"
    chmod +x "$tools/zig-$triple"-*
    export "CC_${triple//-/_}=$tools/zig-$triple-cc" "AR_${triple//-/_}=$tools/zig-$triple-ar"
}
# without_libnode: for Windows without Microsoft's linker napi's build script wants the first of these files, and zig the second; nothing is
# linked to them.
without_libnode() { export LIBNODE_PATH=$target/ci/targets && mkdir -p "$LIBNODE_PATH" && : >"$LIBNODE_PATH/libnode.dll" && echo '!<arch>' >"$LIBNODE_PATH/libnode.a"; }
# laptop_archive PARENT NAME FOLDER: FOLDER gets PARENT/NAME as people unpack it there: a zip for Windows, a tar.gz for macOS.
laptop_archive() {
    find "$1/$2" -exec touch -h -d '2026-01-01 00:00Z' {} +
    case $2 in
    *-windows-*) need zip zip && rm -f "$3/$2.zip" && (cd "$1" && find "$2" | LC_ALL=C sort | TZ=UTC zip -q -X -9 -@ "$3/$2.zip") ;;
    *) tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mode=go-w -I 'gzip -9n' -cf "$3/$2.tar.gz" "$2" ;;
    esac
}
# workspace_version: the version of every package.
workspace_version() { sed -n '/^\[workspace.package\]/,/^\[/ s/^version = "\(.*\)"/\1/p' "$root/Cargo.toml"; }
# command_archive PLATFORM FOLDER: FOLDER gets the archive of a laptop's command, from ci/package/platforms.
command_archive() {
    local version name work; version=$(workspace_version)
    name=keymill-command-$version-$1 work=$(mktemp -d)
    mkdir "$work/$name" && cp "$(ls "$target/platforms/$1"/keymill{.exe,} 2>/dev/null)" "$root"/LICENSE-* "$work/$name" &&
        laptop_archive "$work" "$name" "$2" && rm -r "$work"
}

# newest NAME: the newest package of this name, in which `*` stands for anything.
newest() { ls -t "$target"/packages/$1 | head -n 1; }
# The package of a language in an empty place, with drivers of databases, for programs of `tests/programs`.
# java_program FOLDER SOURCE: `programs_of_java FOLDER` is its class path.
java_program() { cp "$(newest 'keymill-[0-9]*[0-9].jar')" "$1/keymill.jar" && javac -cp "$(programs_of_java "$1")" -d "$1/java" "$2"; }
programs_of_java() { echo "$1/keymill.jar:$1/java:$target/ci/java/build/test-libraries/*"; }
# python_program FOLDER NAME: the drivers are those of ci/requirements/NAME.txt.
python_program() { python3 -m venv "$1/venv" && pip_locked "$1/venv/bin/python" "$2" && "$1/venv/bin/pip" install -q "$(newest 'keymill-*.whl')"; }
# node_program FOLDER NAME SOURCE: the drivers are those of ci/npm/NAME.
node_program() {
    npm_locked "$root/ci/npm/$2" "$1/node" && cp "$3" "$1/node/" &&
        (cd "$1/node" && npm install --silent --no-save --ignore-scripts --no-audit --no-fund "$(newest 'keymill-*.tgz')")
}

# tree_commit: the commit that this tree stands at, with `-changed` behind it where a file is not the commit's.
tree_commit() {
    local commit
    commit=$(git -C "$root" rev-parse --verify HEAD) || return
    [ -z "$(git -C "$root" status --porcelain)" ] || commit=$commit-changed
    echo "$commit"
}
# record_built COMMIT FOLDER: what FOLDER/complete says: the commit that its files are built from, and the sum of each.
record_built() { echo "commit $1"; (cd "$2" && find . -type f ! -name complete -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }
# built_from COMMIT FOLDER: the folder's files are those that were built from this commit.
built_from() {
    local said
    said=$(sed -n '1s/^commit //p' "$2/complete" 2>/dev/null)
    [ "$said" = "$1" ] || { echo "$2 was built from ${said:-no known commit}, not from $1: run ci/package/platforms there"; return 1; }
    [ "$(record_built "$1" "$2")" = "$(cat "$2/complete")" ] || { echo "files of $2 have changed since they were built"; return 1; }
}

# Sums of files, kept in this shell's memory, where no program that it starts can change them.
seals=
# seal FOLDER: the sums of its files that have none yet.
seal() {
    local file
    for file in "$1"/*; do
        ! grep -qxF "${file##*/}" <<<"$(cut -c67- <<<"$seals")" || continue
        seals+=${seals:+$'\n'}$(cd "$1" && sha256sum -- "${file##*/}")
    done
}
# sealed FOLDER: every file is what it was when it was sealed, and none was added but SHA256SUMS, which has these sums.
sealed() {
    (cd "$1" && sha256sum --check --quiet --strict - <<<"$seals") || return
    [ ! -e "$1/SHA256SUMS" ] || [ "$(cat "$1/SHA256SUMS")" = "$seals" ] || { echo "SHA256SUMS has changed"; return 1; }
    diff <(cut -c67- <<<"$seals" | LC_ALL=C sort) <(cd "$1" && printf '%s\n' * | grep -vx SHA256SUMS | LC_ALL=C sort)
}

# framework_class_path PROFILE FILE: the jars of a profile of the tests of Java's frameworks, as Maven resolves them; asked once for each text of
# the pom. FILE keeps them.
framework_class_path() {
    local pom=$root/bindings/java/frameworks/tests/pom.xml sum
    sum=$(sha256sum <"$pom")
    if [ "$(cat "$2.sum" 2>/dev/null)" != "$sum" ]; then
        mvn -q -B --no-transfer-progress -f "$pom" -P "$1" \
            org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath "-Dmdep.outputFile=$2" >&2 || return
        echo "$sum" >"$2.sum"
    fi
    cat "$2"
}
# fat_jar FOLDER LIBRARIES: FOLDER/shop.jar is an application of Spring Boot as Boot's plugin packs it: the loader's classes, and the application and its
# libraries below BOOT-INF.
fat_jar() {
    local jar loader source=$root/bindings/java/frameworks/spring-boot-starter/src/test/hosts/shop/Application.java
    rm -rf "$1" && mkdir -p "$1"/content/BOOT-INF/{classes,lib} || return
    javac -nowarn -proc:none -parameters -d "$1/content/BOOT-INF/classes" -cp "$2" "$source" || return
    for jar in ${2//:/ }; do
        case $jar in
        */spring-boot-loader-*) loader=$jar ;;
        */spring-boot-devtools-* | */junit-*) ;;
        *) cp "$jar" "$1/content/BOOT-INF/lib" || return ;;
        esac
    done
    (cd "$1/content" && jar xf "$loader" org) && printf '%s: %s\n' Main-Class org.springframework.boot.loader.launch.JarLauncher Start-Class shop.Application \
        Spring-Boot-Classes BOOT-INF/classes/ Spring-Boot-Lib BOOT-INF/lib/ >"$1/manifest" &&
        jar --create --no-compress --file "$1/shop.jar" --manifest "$1/manifest" -C "$1/content" .
}
# starter: the modules that keymill's starter for Spring Boot brings.
starter="support hibernate mybatis spring-data json spring-boot-starter"

# java_poms ROOT: the poms of what is published for Java from a tree: the jar's, that of the modules' parent, and each module's.
java_poms() { grep -lE '^  <artifactId>keymill' "$1"/bindings/java/{java,frameworks,frameworks/*}/pom.xml | grep -v -e '-stub/pom.xml$'; }
# artifact POM: its name.
artifact() { grep -m1 -oP '^  <artifactId>\K[^<]*' "$1"; }

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

# other_version NAME VERSION: the folder with the programs of a server of that version, which `ci/servers/versions` lists. The first use unpacks them.
other_version() {
    local suite packages folder=$target/ci/userland/$1-$2
    read -r _ _ suite packages < <(grep -E "^$1 +${2//./\\.} " "$root/ci/servers/versions") ||
        { echo "ci/servers/$1: version $2 is not known; known are $(sed -nE "s/^$1 +([^ ]+).*/\1/p" "$root/ci/servers/versions" | paste -sd' ')" >&2; return 2; }
    mkdir -p "$target/ci/userland"
    ( # Two tests at once would unpack it twice.
        flock 9
        [ -e "$folder/complete" ] || { "$root/ci/userland" make "$folder" "$suite" "$(dpkg --print-architecture)" $packages >&2 && : >"$folder/complete"; }
    ) 9>"$folder.lock" && echo "$folder"
}

# of_version NAME [--version V …]: sets `version` to V, or else to what KEYMILL_CI_NAME_VERSION says, which V is written to for the commands
# that follow, and `on` to a prefix of commands: they run on the system that the version comes from. Both are empty for this machine's own server.
of_version() {
    local variable=KEYMILL_CI_${1^^}_VERSION programs
    [ "${2:-}" != --version ] || export "$variable=$3"
    version=${!variable:-} on=()
    [ -n "$version" ] || return 0
    programs=$(other_version "$1" "$version") || exit
    on=("$root/ci/userland" server "$programs")
}

# summary: prints the last line; succeeds if nothing failed.
summary() {
    local more=; [ "$skipped" = 0 ] || more=", $skipped skipped"
    echo "$passed passed, $failed failed$more"
    [ "$failed" = 0 ]
}

# stays: what the `run` of a server script says where it starts the server.
stays() { echo "$0: the server stays for the next command; \`$0 stop\` ends it" >&2; }

# note NAME: what a server's script has written into its folder `home` under this name.
note() { [ -f "$home/$1" ] && echo "$(<"$home/$1")"; }

# born PID: when this process began, in the kernel's ticks.
# No program is run: servers that end are asked for many times.
born() {
    local fields
    { fields=$(<"/proc/$1/stat"); } 2>/dev/null || return
    read -ra fields <<<"${fields##*) }"
    echo "${fields[19]}"
}
# lives PID BORN: whether the process is still the one that began then. A free pid is reused for other processes and for
# their threads; it may belong to another user, so `kill -0` is no test.
lives() { [ -n "$1" ] && [ -n "$2" ] && [ "$(born "$1")" = "$2" ]; }

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
