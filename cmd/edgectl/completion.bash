# bash completion for edgectl: edgectl itself is asked what can follow.
_edgectl() {
    local cur=${COMP_WORDS[COMP_CWORD]} line
    local -a words=("${COMP_WORDS[@]:0:COMP_CWORD}")
    [[ $cur == -* ]] && words+=("$cur")
    COMPREPLY=()
    while IFS= read -r line; do
        [[ $line == "$cur"* ]] && COMPREPLY+=("$line")
    done < <(command edgectl "${words[@]:1}" --generate-bash-completion 2>/dev/null)
}
complete -o default -F _edgectl edgectl
