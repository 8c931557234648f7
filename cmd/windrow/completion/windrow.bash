# bash completion of windrow. Made by: windrow completion bash
# Bash 3.2 or later, with or without the package bash-completion.

_windrow() {
	local IFS=$' \t\n' i line part paths=
	local -a words=()
	# Bash parts words at = and :, too. What no blank parts is one word here; the last one ends at the cursor.
	local rest=${COMP_LINE:0:COMP_POINT}
	for ((i = 0; i <= COMP_CWORD; i++)); do
		part=${COMP_WORDS[i]}
		if ((i == COMP_CWORD)); then
			part=${rest#"${rest%%[![:space:]]*}"}
		fi
		if ((i > 0)) && [[ $rest != [[:space:]]* ]]; then
			words[${#words[@]} - 1]+=$part
		else
			words+=("$part")
		fi
		rest=${rest#"${rest%%[![:space:]]*}"}
		rest=${rest#"$part"}
	done
	# Bash puts a candidate in the place of what stands behind the last = or :
	local current=${words[${#words[@]} - 1]} kept=
	if [[ $current == *[=:]* ]]; then
		kept=${current%"${current##*[=:]}"}
	fi
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:*) paths=$line ;;
		*)
			line=${line%%$'\t'*}
			COMPREPLY+=("${line#"$kept"}")
			;;
		esac
	done < <(command "${words[0]/#\~/$HOME}" __complete -- "${words[@]:1}" 2>/dev/null)
	if [[ -n $paths ]]; then
		local kind=-f
		if [[ $paths == :folders ]]; then
			kind=-d
		fi
		while IFS= read -r line; do
			COMPREPLY+=("$line")
		done < <(compgen "$kind" -- "${current#"$kept"}")
		compopt -o filenames 2>/dev/null
		# ~ and quotes are the shell's own to read.
		if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
			compopt -o default 2>/dev/null
		fi
	elif [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=:] ]]; then
		compopt -o nospace 2>/dev/null
	fi
}
complete -F _windrow windrow
