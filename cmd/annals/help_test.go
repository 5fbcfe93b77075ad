package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/runtest"
)

// newParser returns a parser of the command line that runs nothing.
func newParser(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := kong.New(&CLI{}, kong.Name("annals"), grammar.Settled(func(string) string { return "" }, grammar.Unread{}),
		kong.Vars{"version": ""}, kong.Exit(func(int) { panic("the parser ends the program") }))
	runtest.Must(t, err)
	return parser
}

// word is a word of a command line, which may be quoted.
var word = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// The help of each command has two examples, which the program understands.
func TestHelp_Examples(t *testing.T) {
	known := map[string]bool{}
	for _, leaf := range newParser(t).Model.Leaves(true) {
		known[leaf.Path()] = true
		shown := examples[leaf.Path()]
		for _, example := range shown {
			words := word.FindAllString(example, -1)
			for i, w := range words {
				words[i] = strings.Trim(w, `'"`)
			}
			for len(words) > 0 && strings.HasPrefix(words[0], "ANNALS_") {
				words = words[1:]
			}
			if len(words) < 2 || words[0] != "annals" {
				t.Errorf("%s: the example is %q", leaf.Path(), example)
				continue
			}
			got, err := newParser(t).Parse(amounts.JoinNegative(words[1:]))
			if err != nil || got.Selected().Path() != leaf.Path() {
				t.Errorf("%s: %v", example, err)
			}
		}
		if shown[0] == shown[1] {
			t.Errorf("%s: both examples are %q", leaf.Path(), shown[0])
		}
	}
	for path := range examples {
		if !known[path] {
			t.Errorf("examples of %q, which is no command", path)
		}
	}
	for _, command := range [][]string{{"backup"}, {"org"}, {"org", "create"}, {"person"}} {
		got := annals(t.Context(), nil, "", append(command, "--help")...)
		if _, after, _ := strings.Cut(got.stdout, "Examples:\n"); strings.Count(after, "\n    annals ") != 2 {
			t.Errorf("%v: %s", command, got.stdout)
		}
	}
}

// The groups of the help of serve are the sections of the page of settings.
func TestHelp_Groups(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	runtest.Must(t, err)
	titles := map[string]string{}
	for section := range strings.SplitSeq(string(page), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		for _, names := range tableOfSettings.FindAllStringSubmatch(section, -1) {
			for name := range strings.FieldsSeq(names[2]) {
				titles["ANNALS_"+name] = title
			}
		}
	}
	for _, node := range newParser(t).Model.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
			name := flag.Tag.Get("setting")
			if name != "" && (flag.Group == nil || flag.Group.Title != titles[name]) {
				t.Errorf("%s: the group is %v, the section %q", name, flag.Group, titles[name])
			}
		}
	}
	if got := annals(t.Context(), nil, "", "serve", "--help"); !strings.Contains(got.stdout, "\nWhere the data is\n") {
		t.Errorf("the help is %s", got.stdout)
	}
}

// A word is completed by what may be at its place, and nothing is offered for what the program does not know.
func TestCompletion_Words(t *testing.T) {
	for words, want := range map[string][]string{
		"do":                              {"doctor"},
		"org cr":                          {"create", "credits"},
		"--json org cr":                   {"create", "credits"}, // a flag that is wrong there
		"org create --org-":               nil,
		"org create --ow":                 {"--owner-email"},
		"org create --owner-email x --ow": {"--owner-email"},
		"org create --owner-email ":       nil,
		"completion ":                     {"bash", "zsh", "fish"},
		"completion z":                    {"zsh"},
		"completion bash ":                nil,
		"import ./":                       nil,
		"serve --min-free-disk=":          nil,
		"recall q --chron":                {"--chronological"},
		"recall --chronological q --chr":  {"--chronological"},
		"webhook p":                       {"pause"},
		"comple":                          {"completion"},
		"unknown ":                        nil,
	} {
		got := annals(t.Context(), nil, "", append([]string{"complete", "--"}, strings.Split(words, " ")...)...)
		var found []string
		for line := range strings.Lines(got.stdout) {
			name, _, _ := strings.Cut(line, "\t")
			found = append(found, name)
		}
		if got.code != exitOK || !slices.Equal(found, want) {
			t.Errorf("%q: %v, want %v (%s)", words, found, want, got.stderr)
		}
	}
	all := annals(t.Context(), nil, "", "complete", "--", "")
	if n := strings.Count(all.stdout, "\n"); n < 20 || strings.Contains(all.stdout, "complete\t") {
		t.Errorf("the commands are\n%s", all.stdout)
	}
}

// Bash completes by its script.
func TestCompletion_Bash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("this machine has no bash")
	}
	script := filepath.Join(t.TempDir(), "annals")
	runtest.Must(t, os.WriteFile(script, []byte(annals(t.Context(), nil, "", "completion", "bash").stdout), 0o600))
	now := filepath.Join(t.TempDir(), "clock")
	runtest.Must(t, os.WriteFile(now, []byte("0"), 0o600))
	for words, want := range map[string]string{
		`org cr`: "create\ncredits\n", `completion ""`: "bash\nzsh\nfish\n", `import ""`: "",
	} {
		cmd := exec.CommandContext(runtest.Context(t), bash, "--norc", "-c", fmt.Sprintf(
			`source %q; COMP_WORDS=(%q %s); COMP_CWORD=2; _annals; for w in "${COMPREPLY[@]}"; do echo "$w"; done`,
			script, os.Args[0], words))
		cmd.Env = append(os.Environ(), clockFile+"="+now)
		out, err := cmd.Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", words, out, err)
		}
	}
}

// Every shell has a script, and another one is refused.
func TestCompletion_Shells(t *testing.T) {
	for shell := range grammar.Shells {
		if got := annals(t.Context(), nil, "", "completion", shell); got.code != exitOK ||
			!strings.Contains(got.stdout, "complete -- ") {
			t.Errorf("%s: %+v", shell, got)
		}
	}
	if got := annals(t.Context(), nil, "", "completion", "tcsh"); got.code != exitUsage {
		t.Errorf("tcsh: %+v", got)
	}
}
