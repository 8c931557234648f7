# fish completion of windrow. Made by: windrow completion fish

function __windrow_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    for line in (command $program __complete -- $words $current 2>/dev/null)
        switch $line
            case ':*'
                __windrow_paths $line $current
            case '*'
                printf '%s\n' $line
        end
    end
end

# Paths, behind what stands before them in the word: --flag=PATH, NAME=PATH.
function __windrow_paths
    set -l kept (string match -r '^.*=' -- $argv[2])
    set -l path (string replace -r '^.*=' '' -- $argv[2])
    set -l tilde (string match -r '^~' -- $path)
    set path (string replace -r '^~' $HOME -- $path)
    for found in $path*
        if test -d $found
            set found $found/
        else if test $argv[1] = :folders
            continue
        end
        if test -n "$tilde"
            set found '~'(string sub -s (math (string length -- $HOME) + 1) -- $found)
        end
        printf '%s\n' "$kept$found"
    end
end

complete -c windrow -f -a '(__windrow_complete)'
