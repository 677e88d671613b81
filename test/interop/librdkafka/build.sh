#!/bin/sh
# Fetches librdkafka's source package from the distribution's own mirrors and builds its test runner
# here. The machine's package sources stay as they are: what is asked for sources is a copy.
set -e
mkdir -p apt/parts apt/lists/partial
for f in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
	[ -f "$f" ] && sed -E 's/^Types:.*/Types: deb-src/; s/^deb /deb-src /' "$f" >"apt/parts/${f##*/}"
done
ask() { apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$PWD/apt/parts" -o Dir::State::lists="$PWD/apt/lists" -o APT::Sandbox::User=root "$@"; }
ask update || true # a source of something else may have no source packages
ask source --download-only librdkafka
tar xf librdkafka_*.orig.tar.*
mv librdkafka-*/ source
cd source
./configure
make -j"$(nproc)" libs
make -j"$(nproc)" -C tests build
