package e2e

import (
	"bytes"
	"context"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// program finds the programs of docs/integrate.md, after a comment with the name of their file.
var program = regexp.MustCompile("(?s)<!-- tested: (chat[.][a-z]+) -->\n```[a-z]+\n(.*?)```")

// TestIntegrate runs the chat assistants exactly as they are printed. They remember what a user said when the user
// comes back, and tell nobody else.
func TestIntegrate(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/integrate.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]byte{}
	for _, found := range program.FindAllSubmatch(page, -1) {
		programs[string(found[1])] = found[2]
	}
	if len(programs) != 2 {
		t.Fatalf("the page has %d programs", len(programs))
	}
	s := newService(t, sharedPostgres(t))
	s.start()
	for name, command := range map[string]func(t *testing.T, file string) []string{
		"chat.py": func(_ *testing.T, file string) []string { return []string{"python3", file} },
		"chat.go": func(t *testing.T, file string) []string {
			if formatted, err := format.Source(programs["chat.go"]); err != nil || !bytes.Equal(formatted, programs["chat.go"]) {
				t.Errorf("chat.go is not formatted: %v", err)
			}
			out := filepath.Join(filepath.Dir(file), "chat")
			s.runs(t, []string{"go", "build", "-o", out, file}, "")
			return []string{out}
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(file, programs[name], 0o600); err != nil {
				t.Fatal(err)
			}
			run := command(t, file)
			says := func(user, lines string) string {
				t.Helper()
				return s.runs(t, append(run[:len(run):len(run)], user+" of "+name), lines)
			}
			const told, asked = "My dentist is Doctor Weiss.", "Who is my dentist?"
			const shared = "My favourite colour is green."
			if got := says("ana", told+"\n\n"+shared+"\n"); strings.Count(got, "Answer this") != 2 {
				t.Errorf("two lines are answered by\n%s", got)
			}
			if got := says("ben", shared+"\n"+asked+"\n"); strings.Contains(got, "Weiss") {
				t.Errorf("a neighbour recalls\n%s", got)
			}
			if got := says("ana", asked+"\nWhich colour is my favourite?\n"); !strings.Contains(got, told) ||
				strings.Count(got, ": "+shared) == 0 {
				t.Errorf("the user recalls\n%s", got)
			}
		})
	}
}

// runs runs a program with the credentials of the service in its environment, and returns what it prints.
func (s *service) runs(t *testing.T, command []string, input string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "ANNALS_API_URL=http://"+s.addr)
	for name, value := range s.credentials() {
		if name != "ANNALS_API_URL" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
	return string(out)
}
