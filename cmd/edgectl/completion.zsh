#compdef edgectl
# zsh completion for edgectl: edgectl itself is asked what can follow.
_edgectl() {
    local cur=${words[CURRENT]}
    local -a asked=("${(@)words[2,CURRENT-1]}") found
    [[ $cur == -* ]] && asked+=("$cur")
    found=("${(@f)$(command edgectl "${asked[@]}" --generate-bash-completion 2>/dev/null)}")
    compadd -a found || _files
}
compdef _edgectl edgectl
# Loaded by name, as from a package, this is the body of the function: the first call has to complete too.
[[ ${funcstack[1]} != _edgectl ]] || _edgectl "$@"
