package grammar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Candidate is what a shell offers for a word.
type Candidate struct{ Word, Help string }

// Complete returns what the last of some words, which follow the name of the program, may become. It returns none for
// what the program does not know, such as a file.
func Complete(model *kong.Application, words []string) []Candidate {
	if len(words) == 0 {
		words = []string{""}
	}
	node, positional, value := model.Node, 0, (*kong.Flag)(nil)
	before, word := words[:len(words)-1], words[len(words)-1]
	for _, w := range before {
		flag, isFlag := flagOf(node, w)
		child := childOf(node, w)
		switch {
		case w == "=": // a shell that cuts --flag=value into three words
		case value != nil:
			value = nil
		case isFlag:
			value = flag
		case child != nil:
			node, positional = child, 0
		default:
			positional++
		}
	}
	name, text, assigned := strings.Cut(word, "=")
	switch flag, _ := flagOf(node, name); {
	case value != nil:
		return enum(value.Value, "", strings.TrimPrefix(word, "="))
	case assigned && flag != nil:
		return enum(flag.Value, name+"=", text)
	case strings.HasPrefix(word, "-"):
		return flags(node, word)
	case len(node.Children) > 0 && positional == 0: // else a word was no command
		return children(node, word)
	case positional < len(node.Positional):
		return enum(node.Positional[positional], "", word)
	}
	return nil
}

// flagOf returns the flag that a word names if a value follows it as another word. ok is true for every flag.
func flagOf(node *kong.Node, word string) (flag *kong.Flag, ok bool) {
	if !strings.HasPrefix(word, "-") || word == "-" {
		return nil, false
	}
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if word == "--"+f.Name && !f.IsBool() && !f.IsCounter() {
				return f, true
			}
		}
	}
	return nil, true
}

func childOf(node *kong.Node, name string) *kong.Node {
	if i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == name }); i >= 0 {
		return node.Children[i]
	}
	return nil
}

func flags(node *kong.Node, prefix string) (found []Candidate) {
	for _, group := range node.AllFlags(true) {
		for _, f := range group {
			if word := "--" + f.Name; strings.HasPrefix(word, prefix) {
				found = append(found, Candidate{word, f.Help})
			}
		}
	}
	return found
}

func children(node *kong.Node, prefix string) (found []Candidate) {
	for _, c := range node.Children {
		if !c.Hidden && strings.HasPrefix(c.Name, prefix) {
			found = append(found, Candidate{c.Name, c.Help})
		}
	}
	return found
}

// enum returns the values that a flag or an argument may have, if they are known.
func enum(of *kong.Value, before, prefix string) (found []Candidate) {
	if of.Enum == "" {
		return nil
	}
	for _, word := range of.EnumSlice() {
		if strings.HasPrefix(word, prefix) {
			found = append(found, Candidate{before + word, ""})
		}
	}
	return found
}

// String is the candidate as the scripts of Shells read it: the word, a tab and the first line of the help.
func (c Candidate) String() string {
	help, _, _ := strings.Cut(c.Help, "\n")
	return fmt.Sprintf("%s\t%s", c.Word, help)
}

// Shells are the scripts that let a shell complete the commands of the program, by the name of the shell. Where the
// program offers nothing, the shell offers files.
var Shells = map[string]string{
	"bash": `# annals completion bash > /etc/bash_completion.d/annals
_annals() {
	local IFS=$'\n'
	COMPREPLY=($("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _annals annals
`,
	"zsh": `#compdef annals
# annals completion zsh > "${fpath[1]}/_annals"
_annals() {
	local -a found
	local word help
	while IFS=$'\t' read -r word help; do
		found+=("${word//:/\\:}:$help")
	done < <("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	if (( ${#found} )); then
		_describe annals found
	else
		_files
	fi
}
compdef _annals annals
# A shell that loads the file as a function calls it for the first word.
if [[ "${funcstack[1]}" == _annals ]]; then
	_annals
fi
`,
	"fish": `# annals completion fish > ~/.config/fish/completions/annals.fish
function __annals_complete
	set -l words (commandline -opc)
	set -l found ($words[1] complete -- $words[2..-1] (commandline -ct) 2>/dev/null)
	if test (count $found) -gt 0
		printf '%s\n' $found
	else
		__fish_complete_path (commandline -ct)
	end
end
complete -c annals -f -a '(__annals_complete)'
`,
}
