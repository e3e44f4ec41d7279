#!/bin/sh
# A relay without a TAP key has a microdescriptor whose line `onion-key` has no key after it. The
# directory specification says that the key is optional there (dir-spec, "Computing
# microdescriptors"; proposal 350), and Arti reads such a text. A researcher expects that stem, the
# usual Python reader of Tor's documents, reads it with `validate=True`, the mode for data of others.
# stem refuses the relay. With `validate=False` it reads the same text, with `onion_key` None.
# Exit status: 0 as found, 1 if that changes, 2 if it cannot be run.
set -eu
stem=1.8.2 netdoc=0.47.0
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT; cd "$work"
python3 -m venv venv
timeout 200 venv/bin/pip install --quiet --disable-pip-version-check "stem==$stem" \
    >log 2>&1 || { tail -3 log; exit 2; }
cat >text <<'TEXT'
onion-key
ntor-onion-key Ja2nZVcRJ1vAxDrhEvVO6n2pGvwWqJ3yN2pFQbQ0rGs
id ed25519 rHxPmyWWnmDcM2BBvK3vJ+UrSWdzrsUjyxMsLuRKk6Q
TEXT
timeout 60 venv/bin/python >found <<'PYTHON'
from stem.descriptor.microdescriptor import Microdescriptor

with open("text") as file:
    text = file.read()
for validate in (False, True):
    try:
        key = Microdescriptor.from_str(text, validate=validate).onion_key
        print(f"stem, validate={validate}: read, onion_key {key}")
    except ValueError as error:
        print(f"stem, validate={validate}: {error}")
PYTHON
mkdir src
cat >Cargo.toml <<TOML
[package]
name = "finding"
version = "0.1.0"
edition = "2021"

[dependencies]
tor-netdoc = "=$netdoc"

[workspace]
TOML
cat >src/main.rs <<'RUST'
fn main() {
    let text = std::fs::read_to_string("text").unwrap();
    match tor_netdoc::doc::microdesc::MicrodescAndHash::parse(&text) {
        Ok(_) => println!("tor-netdoc: read"),
        Err(error) => println!("tor-netdoc: {error}"),
    }
}
RUST
timeout 900 cargo run --quiet >>found 2>log || { tail -5 log; exit 2; }
echo "stem $stem, tor-netdoc $netdoc; the relay has an ntor key, and no TAP key:"
cat found
grep -q '^stem, validate=False: read, onion_key None$' found &&
    grep -q "^stem, validate=True: 'onion-key' should be followed by" found &&
    grep -q '^tor-netdoc: read$' found
