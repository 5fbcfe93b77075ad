package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/doctor"
	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/internal/amounts"
	"github.com/annals-project/annals/internal/build"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/access"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/embeddings"
	"github.com/annals-project/annals/projections/memories"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/trace"
	"github.com/annals-project/annals/projections/usage"
)

// outcome is the result of a run of the command line.
type outcome struct {
	command        string
	code           int
	stdout, stderr string
}

// wants checks the exit code, and that some texts are printed: on standard output by a run that ended well, on standard
// error by another one.
func (o outcome) wants(t testing.TB, code int, texts ...string) {
	t.Helper()
	printed := o.stdout
	if code != exitOK {
		printed = o.stderr
	}
	for _, text := range texts {
		if !strings.Contains(printed, text) {
			t.Errorf("got %+v, want %q", o, text)
		}
	}
	if o.code != code {
		t.Errorf("got %+v, want exit code %d", o, code)
	}
}

// prints checks that a run ended well, and printed a text and nothing else.
func (o outcome) prints(t testing.TB, text string) {
	t.Helper()
	if o.code != exitOK || o.stdout != text || o.stderr != "" {
		t.Errorf("got %+v, want %q", o, text)
	}
}

// fails checks that a run ended with a code and one line on standard error, which has some texts.
func (o outcome) fails(t testing.TB, code int, texts ...string) {
	t.Helper()
	if o.wants(t, code, texts...); strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
		t.Errorf("got %+v, want one line on standard error", o)
	}
}

// annals runs the command line with an environment of its own.
func annals(ctx context.Context, env map[string]string, stdin string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	code := run(ctx, args, func(name string) string { return env[name] }, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{strings.Join(args, " "), code, stdout.String(), stderr.String()}
}

func TestHelp_EverySettingWithItsVariable(t *testing.T) {
	got := annals(t.Context(), nil, "", "serve", "--help")
	for _, name := range []string{
		"DATA_DIR", "API_ADDR", "CONSOLE_ADDR", "API_URL", "CONSOLE_URL", "AUTH_URL", "EVENTSTORE", "POSTGRES",
		"INDEX", "PIPELINE", "HASH_KEY", "TLS_CERT", "TLS_KEY", "LOG_LEVEL",
	} {
		got.wants(t, exitOK, "$ANNALS_"+name)
	}
}

func TestCLI_BenchIsAnotherProgram(t *testing.T) {
	annals(t.Context(), nil, "", "bench", "load", "--own").fails(t, exitUsage, "annals-bench")
}

func TestCLI_WrongUse(t *testing.T) {
	for _, args := range [][]string{{"remember"}, {"serve", "--loud"}, {"serve", "--pipeline=maybe"}} {
		annals(t.Context(), nil, "", args...).fails(t, exitUsage)
	}
}

func TestCLI_HelpWithoutCommand(t *testing.T) {
	want := annals(t.Context(), nil, "", "--help")
	for _, args := range [][]string{{}, {"help"}} {
		got := annals(t.Context(), nil, "", args...)
		if got.wants(t, exitOK, "serve"); got.stdout != want.stdout || got.stderr != want.stderr {
			t.Errorf("annals %v: %+v", args, got)
		}
	}
	annals(t.Context(), nil, "", "help", "serve").wants(t, exitOK, "$ANNALS_DATA_DIR")
}

func TestCLI_Version(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		annals(t.Context(), nil, "", args...).prints(t, "annals "+build.Get().String()+"\n")
	}
	annals(t.Context(), nil, "", "version", "--json").wants(t, exitOK, `"version": "`+build.Get().Version)
}

func TestCLI_NumberThatIsNone(t *testing.T) {
	for flag, name := range map[string]string{
		"--min-free-disk": "ANNALS_MIN_FREE_DISK", "--rate-limit-per-minute": "ANNALS_RATE_LIMIT_PER_MINUTE",
	} {
		for _, got := range []outcome{
			annals(t.Context(), map[string]string{name: "lots"}, "", "serve"),
			annals(t.Context(), map[string]string{name: "7"}, "", "serve", flag+"=lots"),
		} {
			got.wants(t, exitUsage, name+" ("+flag+`) is "lots": want a whole number`)
		}
	}
}

// Every setting that is wrong is named at once, whatever is wrong with it.
func TestCLI_AllWrongSettings(t *testing.T) {
	wrong := map[string]string{
		"ANNALS_MIN_FREE_DISK": "lots", "ANNALS_STOP_DELAY_SECONDS": "7 s", "ANNALS_OPEN_OFFERS": "many",
		"ANNALS_API_ADDR": "x", "ANNALS_POSTGRES": "mysql://h/d", "ANNALS_LOG_LEVEL": "loud", "ANNALS_PROFILE": "maybe",
		"ANNALS_RECALL_FLOOR": "maybe", "ANNALS_SIGN_UP": "maybe", "ANNALS_OIDC_TRUST_EMAIL": "maybe", "ANNALS_ROLES": "all",
	}
	got := annals(t.Context(), wrong, "", "serve", "--data-dir", t.TempDir())
	if got.code != exitUsage || strings.Count(got.stderr, "\n") != len(wrong) {
		t.Errorf("got %+v, want %d lines", got, len(wrong))
	}
	for name := range wrong {
		if !strings.Contains(got.stderr, name+" ") {
			t.Errorf("%s is not named", name)
		}
	}
}

// Doctor runs with settings that cannot work, and names each of them.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"ANNALS_DATA_DIR": dir, "ANNALS_API_ADDR": "127.0.0.1:0", "ANNALS_CONSOLE_ADDR": "127.0.0.1:0"}
	if got := annals(t.Context(), env, "", "doctor"); got.code != exitOK || got.stderr != "" ||
		!strings.Contains(got.stdout, "ok      folder: "+dir) {
		t.Errorf("sound: %+v", got)
	}
	env["ANNALS_MIN_FREE_DISK"], env["ANNALS_ROLES"] = "lots", "all"
	got := annals(t.Context(), env, "", "doctor")
	if got.code != exitFailed || got.stderr != "annals: 2 things are broken: each line has what to do\n" ||
		!strings.Contains(got.stdout, `ANNALS_MIN_FREE_DISK (--min-free-disk) is "lots"`) ||
		!strings.Contains(got.stdout, `ANNALS_ROLES names the role "all"`) {
		t.Errorf("broken: %+v", got)
	}
	got = annals(t.Context(), env, "", "doctor", "--json")
	var report doctor.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitFailed ||
		report.Findings[0].State != doctor.Broken || report.Findings[0].Remedy == "" {
		t.Errorf("as JSON: %v, %+v", err, got)
	}
}

func TestServe_RefusesABackup(t *testing.T) {
	dir := t.TempDir()
	runtest.Must(t, os.WriteFile(filepath.Join(dir, datafolder.BackupList), []byte("{}"), 0o600))
	args := []string{"--data-dir", dir, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0"}
	for _, command := range [][]string{
		append([]string{"serve"}, args...), append([]string{"rebuild", "all"}, args...),
		{"backup", filepath.Join(t.TempDir(), "copy"), "--data-dir", dir},
		{"node", "--insecure", "--addr", "127.0.0.1:0", "--data-dir", dir},
	} {
		annals(t.Context(), nil, "", command...).wants(t, exitFailed, "is a backup", "annals restore")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the backup was changed: %v, %v", left, err)
	}
}

// A misspelt variable is named with the setting that it resembles.
func TestServe_UnknownVariable(t *testing.T) {
	var stderr bytes.Buffer
	env := &Env{
		Getenv: func(string) string { return "" }, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &stderr,
		Environ: []string{"ANNALS_API_ADR=x", "ANNALS_MANAGEMENT_KEY=x"},
	}
	backup := t.TempDir() // so that the start ends after the settings
	runtest.Must(t, os.WriteFile(filepath.Join(backup, datafolder.BackupList), nil, 0o600))
	runIn(t.Context(), []string{
		"serve", "--data-dir", backup, "--api-addr", "127.0.0.1:0", "--console-addr", "127.0.0.1:0",
	}, env)
	if text := stderr.String(); !strings.Contains(text, `"variable":"ANNALS_API_ADR","nearest":"ANNALS_API_ADDR"`) ||
		strings.Contains(text, "MANAGEMENT") || !strings.Contains(text, `"msg":"annals starts","version":"`) {
		t.Errorf("logged %s", text)
	}
}

func TestCLI_EnvironmentWithoutFlag(t *testing.T) {
	env := map[string]string{"ANNALS_PIPELINE": "maybe"}
	annals(t.Context(), env, "", "serve").wants(t, exitUsage, `ANNALS_PIPELINE is "maybe"`)
	got := annals(t.Context(), env, "", "serve", "--pipeline=off", "--log-level=loud")
	if strings.Contains(got.stderr, "PIPELINE") {
		t.Errorf("the flag did not win over the variable: %s", got.stderr)
	}
}

// Scripts read JSON also of what fails.
func TestCLI_JSON(t *testing.T) {
	data, root := keptFolder(t), t.TempDir()
	backup, closed := filepath.Join(root, "backup"), "127.0.0.1:1"
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"backup", backup, "--data-dir", data}, exitOK, `"position"`},
		{[]string{"restore", backup, "--data-dir", filepath.Join(root, "restored")}, exitOK, `"position"`},
		{[]string{"healthcheck", "--api-addr", closed}, exitFailed, `"ok": false`},
		{[]string{"status", "--data-dir", root, "--url", "http://" + closed}, exitFailed, `"why": "no answer from`},
	} {
		got := annals(t.Context(), nil, "", append(c.args, "--json")...)
		if got.code != c.code || !json.Valid([]byte(got.stdout)) || !strings.Contains(got.stdout, c.want) {
			t.Errorf("%v: %+v", c.args, got)
		}
		if failed := c.code != exitOK; failed != (strings.Count(got.stderr, "\n") == 1) {
			t.Errorf("%v: standard error has %q", c.args, got.stderr)
		}
	}
}

func TestCLI_NoFileDescriptor(t *testing.T) {
	var out bytes.Buffer
	printError(&out, fmt.Errorf("open the log: %w", &os.PathError{Op: "open", Path: "x", Err: syscall.EMFILE}))
	if !strings.Contains(out.String(), "too many open files (raise ulimit -n: 4,096") {
		t.Errorf("printed %s", &out)
	}
}

// The help of rebuild lists what can be built, and none of the settings of the service but its folder.
func TestHelp_Rebuild(t *testing.T) {
	got := annals(t.Context(), nil, "", "rebuild", "--help")
	text := strings.Join(strings.Fields(got.stdout), " ")
	for _, name := range []string{
		access.Name, datapoints.Name, directory.Name, embeddings.Name, memories.Name, recallindex.Name, trace.Name, usage.Name,
	} {
		if !strings.Contains(text, name) {
			t.Errorf("the help lacks %s", name)
		}
	}
	if !strings.Contains(text, "$ANNALS_DATA_DIR") || strings.Contains(text, "$ANNALS_API_ADDR") {
		t.Errorf("the help is %s", got.stdout)
	}
	annals(t.Context(), nil, "", "rebuild", "all", "--eventstore", "x", "--data-dir", t.TempDir()).
		wants(t, exitUsage, "ANNALS_EVENTSTORE")
}

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
	annals(t.Context(), nil, "", "serve", "--help").wants(t, exitOK, "\nWhere the data is\n")
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
	for words, want := range map[string]string{
		`org cr`: "create\ncredits\n", `completion ""`: "bash\nzsh\nfish\n", `import ""`: "",
	} {
		cmd := exec.CommandContext(runtest.Context(t), bash, "--norc", "-c", fmt.Sprintf(
			`source %q; COMP_WORDS=(%q %s); COMP_CWORD=2; _annals; for w in "${COMPREPLY[@]}"; do echo "$w"; done`,
			script, os.Args[0], words))
		cmd.Env = program(t).Env
		out, err := cmd.Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", words, out, err)
		}
	}
}

// Every shell has a script, and another one is refused.
func TestCompletion_Shells(t *testing.T) {
	for shell := range grammar.Shells {
		annals(t.Context(), nil, "", "completion", shell).wants(t, exitOK, "complete -- ")
	}
	annals(t.Context(), nil, "", "completion", "tcsh").wants(t, exitUsage)
}
