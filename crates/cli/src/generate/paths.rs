//! Shell completion of the value of `--path` with this machine's network interfaces. The rest of a
//! completion script is made from the definition of the command line.

use clap_complete::Shell;

/// Adds completion of network interfaces after `--path` to `script`, the completion script for
/// `shell`.
pub(super) fn complete(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script + BASH,
        Shell::Zsh => {
            let script = script.replacen('\n', &format!("\n{ZSH}"), 1);
            script.replace(":NAME=KIND:_default", ":NAME=KIND:_anabranch_paths")
        }
        Shell::Fish => script + FISH,
        _ => script,
    }
}

/// Completion script for bash. Bash's line editor, readline, ends words at `=` and `:`, so the
/// script takes the whole word from the command line. Of each proposal it returns only the part
/// that replaces readline's word (`$2`).
const BASH: &str = r#"
_anabranch_or_path() {
    local line="${COMP_LINE:0:COMP_POINT}" part="$2"
    local word="${line##*[[:blank:]]}"
    if [[ $word == --path=* ]]; then
        word="${word#--path=}"
    elif [[ ! ${line%"$word"} =~ [[:blank:]]--path[[:blank:]]+$ ]]; then
        _anabranch "$@"
        return
    fi
    [[ $part == [=:] || $part == --path=* ]] && part="${part##*[=:]}"
    local name="${word%%=*}" device candidate candidates=()
    [[ $word == *=* ]] || candidates+=(auto)
    for device in /sys/class/net/*; do
        device="${device##*/}"
        [[ $device == lo ]] && continue
        [[ $word == *=* ]] || name="$device"
        candidates+=("$name=if:$device")
    done
    [[ $word == *=* ]] && candidates+=("$name="{addr:,ports:,socks5:,wg:})
    COMPREPLY=()
    for candidate in "${candidates[@]}"; do
        [[ $candidate == "$word"* ]] && COMPREPLY+=("${candidate#"${word%"$part"}"}")
    done
    return 0
}
complete -F _anabranch_or_path -o bashdefault -o default anabranch
"#;

const ZSH: &str = r#"
_anabranch_paths() {
    local -a paths
    local device name=${PREFIX%%=*}
    [[ $PREFIX == *=* ]] || paths=(auto)
    for device in /sys/class/net/*(N:t); do
        [[ $device == lo ]] && continue
        [[ $PREFIX == *=* ]] || name=$device
        paths+=("$name=if:$device")
    done
    [[ $PREFIX == *=* ]] && paths+=("$name="{addr:,ports:,socks5:,wg:})
    compadd -S '' -a paths
}
"#;

const FISH: &str = r#"
function __anabranch_paths
    set -l word (commandline -ct | string replace -r -- '^--path=' '')
    set -l name (string replace -r '=.*' '' -- $word)
    string match -q '*=*' -- $word; or echo auto
    for device in /sys/class/net/*
        set device (string replace -r '.*/' '' -- $device)
        test $device = lo; and continue
        string match -q '*=*' -- $word; or set name $device
        echo $name=if:$device
    end
    if string match -q '*=*' -- $word
        printf '%s\n' $name=addr: $name=ports: $name=socks5: $name=wg:
    end
end
complete -c anabranch -n "__fish_anabranch_using_subcommand split" -l path -x -a "(__anabranch_paths)"
complete -c anabranch -n "__fish_anabranch_using_subcommand mosh" -l path -x -a "(__anabranch_paths)"
"#;
