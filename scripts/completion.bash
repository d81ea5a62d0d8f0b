# shellcheck shell=bash
# Completion of the programs for bash: `source scripts/completion.bash`.
# It asks the programs themselves for flags and keys, so it knows what they know.

# Prints the flags of a program, by its own --help.
_ringtrain_flags() {
  "$1" --help 2>/dev/null </dev/null | grep --only-matching --extended-regexp '^ +(-[a-z],)?--[a-z-]+' | sed 's/.*--/--/'
}

# Prints the keys of a config, each with = behind it; for evaluate those that train knows.
_ringtrain_keys() {
  # shellcheck disable=SC2016
  "${1/%evaluate/train}" --help-config 2>/dev/null </dev/null | sed --quiet 's/^\* `\([a-z_.]*\)`.*/\1=/p'
}

# Prints the words that a key takes, of its line "a | b | c".
_ringtrain_words() {
  "${1/%evaluate/train}" --help-config 2>/dev/null </dev/null | sed --quiet "s/^\* \`$2\` (default [^;)]*[;)]:\{0,1\} *//p" |
    grep --only-matching --extended-regexp '^[a-z0-9_+]+( \| [a-z0-9_+]+)+' | tr -d ' ' | tr '|' '\n'
}

_ringtrain() {
  local program=$1 word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} key=''
  COMPREPLY=()
  # = is a word of its own to bash: --set KEY = VALUE
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

complete -F _ringtrain train evaluate generate prepare check compare_dumps plan report
