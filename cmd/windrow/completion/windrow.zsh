#compdef windrow
# zsh completion of windrow. Made by: windrow completion zsh

_windrow() {
	local line word paths
	local -a lines described begun
	lines=("${(@f)$(command "${${(Q)words[1]}/#\~/$HOME}" __complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
	[[ $lines[-1] == :* ]] && paths=$lines[-1]
	for line in $lines; do
		word=${line%%$'\t'*}
		# What is a path besides is left to _files: else it would be there twice.
		[[ $word == :* || -n $paths && ( -e $word || -e ${word#*=} ) ]] && continue
		if [[ $word == *[:=] ]]; then
			begun+=("${word//:/\\:}")
		elif [[ $line == *$'\t'* ]]; then
			described+=("${word//:/\\:}:${line#*$'\t'}")
		else
			described+=("${word//:/\\:}")
		fi
	done
	(( ${#described} )) && _describe -V windrow described
	(( ${#begun} )) && _describe -V begun begun -S ''
	case $paths in
	:folders) compset -P '*='; _files -/ ;;
	:files) compset -P '*='; _files ;;
	esac
}

if [[ $funcstack[1] == _windrow ]]; then
	_windrow "$@"
else
	compdef _windrow windrow
fi
