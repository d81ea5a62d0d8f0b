# shellcheck shell=bash
# Completion of the programs for bash: `source scripts/completion.bash`; also of `ringtrain COMMAND`. It asks the
# programs themselves for flags and keys, so it knows all of them.

# Prints the flags of a program, from its --help.
_ringtrain_flags() {
  "$1" --help 2>/dev/null </dev/null | grep --only-matching --extended-regexp '^ +(-[a-z],)?--[a-z-]+' | sed 's/.*--/--/'
}

# Prints the keys of a config, each followed by =; for evaluate, those of train.
_ringtrain_keys() {
  # shellcheck disable=SC2016
  "${1/%evaluate/train}" --help-config 2>/dev/null </dev/null | sed --quiet 's/^\* `\([a-z_.]*\)`.*/\1=/p'
}

# Prints the words that a key takes, from its line "a | b | c".
_ringtrain_words() {
  "${1/%evaluate/train}" --help-config 2>/dev/null </dev/null | sed --quiet "s/^\* \`$2\` ([^;)]*[;)]:\{0,1\} *//p" |
    grep --only-matching --extended-regexp '^[a-z0-9_+]+( \| [a-z0-9_+]+)+' | tr -d ' ' | tr '|' '\n'
}

_ringtrain() {
  local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} key=''
  COMPREPLY=()
  # bash treats = as a separate word: --set KEY = VALUE
  if [ "$word" = = ]; then
    key=$before word=''
  elif [ "$before" = = ]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  if [ -n "$key" ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ringtrain_words "$program" "$key")" -- "$word")
  elif [ "$before" = --set ]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ringtrain_keys "$program")" -- "$word")
    compopt -o nospace 2>/dev/null || true # outside of a completion: a test
  elif [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_ringtrain_flags "$program")" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null || true
  fi
}

# Completes the program `export` by its path; the shell's own command of that name is completed with variables, as
# usual.
_ringtrain_export() {
  if [[ $1 == */* ]]; then
    _ringtrain "$1"
  else
    mapfile -t COMPREPLY < <(compgen -v -- "${COMP_WORDS[COMP_CWORD]}")
  fi
}

# Completes the command after ringtrain, then what that command's own program knows.
_ringtrain_front() {
  local front=$1 command=${COMP_WORDS[1]-} program word=${COMP_WORDS[COMP_CWORD]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    mapfile -t COMPREPLY < <(compgen -W "$("$front" --help 2>/dev/null </dev/null |
      sed --quiet 's/^  \([a-z_]*\) .*/\1/p')" -- "$word")
    return
  fi
  program=$(readlink -f "$(command -v "$front")")
  program=${program%/*}
  if [ -x "$program/../libexec/ringtrain/$command" ]; then program=$program/../libexec/ringtrain; fi
  COMP_WORDS=("$program/$command" "${COMP_WORDS[@]:2}")
  COMP_CWORD=$((COMP_CWORD - 1))
  _ringtrain "$program/$command"
}

complete -F _ringtrain_front ringtrain
complete -F _ringtrain_export export
complete -F _ringtrain train evaluate generate prepare check plan report extend
