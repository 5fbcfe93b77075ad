package e2e

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// testClients names the folder into which deploy/clients/install.sh has installed the generators.
const testClients = "ANNALS_TEST_CLIENTS"

// jobs is the folder of the programs that use the generated clients.
const jobs = "../../deploy/clients"

// generator is a way to make a client.
type generator struct {
	language, tool string
	// part is the folder of the tool; needs are programs of the machine.
	part  string
	needs []string
	try   func(j *job, folder string)
	// isExtra is true for those of make test-generators.
	isExtra bool
}

var generators = []generator{
	{"Python", "openapi-python-client", "python", nil, (*job).pythonClient, false},
	{"TypeScript", "openapi-ts", "typescript", []string{"node"}, (*job).heyAPI, false},
	{"Python", "openapi-generator", "openapi-generator", []string{"java", "pydantic"}, (*job).generatedPython, true},
	{"Go", "openapi-generator", "openapi-generator", []string{"java", "go"}, (*job).generatedGo, true},
	{"TypeScript", "openapi-generator", "openapi-generator", []string{"java", "node", "typescript"}, (*job).generatedFetch, true},
	{"Java", "openapi-generator", "openapi-generator", []string{"java", "mvn"}, (*job).generatedJava, true},
	{"TypeScript", "openapi-typescript", "openapi-typescript", []string{"node"}, (*job).openapiFetch, true},
	{"Go", "oapi-codegen", "oapi-codegen", []string{"go"}, (*job).oapiCodegen, true},
}

// version returns the version of a generator that is installed, "" for none.
func (g generator) version(folder string) string {
	text, err := os.ReadFile(filepath.Join(folder, g.part, "versions"))
	if err != nil {
		return ""
	}
	found := strings.TrimSpace(string(text))
	for word := range strings.FieldsSeq(found) {
		if at := strings.LastIndexAny(word, "@="); at > 0 && strings.Contains(word[:at], g.tool) {
			return word[at+1:]
		}
	}
	return found
}

// missing returns why a generator cannot be tried here, "" if it can.
func (g generator) missing(folder string) string {
	if g.isExtra && os.Getenv("ANNALS_TEST_GENERATORS") != "all" {
		return "make test-generators tries it"
	}
	for _, need := range append([]string{g.part}, g.needs...) {
		_, folderErr := os.Stat(filepath.Join(folder, need, "versions"))
		if _, err := exec.LookPath(need); err != nil && folderErr != nil {
			return need + " is not installed"
		}
	}
	return ""
}

// Clients that are generated from the document compile, and do the main job.
func TestClients(t *testing.T) {
	t.Parallel()
	folder := os.Getenv(testClients)
	if folder == "" {
		t.Skip(testClients + " names no folder: make test-clients sets it")
	}
	rows := make([]string, len(generators))
	t.Cleanup(func() { t.Log("clients\n" + strings.Join(rows, "\n")) })
	for i, g := range generators {
		row := fmt.Sprintf("%-11s %-22s %-7s ", g.language, g.tool, g.version(folder))
		t.Run(g.language+" by "+g.tool, func(t *testing.T) {
			if why := g.missing(folder); why != "" {
				rows[i] = row + "left out: " + why
				t.Skip(why)
			}
			rows[i] = row + "FAILS"
			g.try(newJob(t), folder)
			if !t.Failed() {
				rows[i] = row + "does the main job"
			}
		})
	}
}

// job is a service, and a folder for a client that is generated for it.
type job struct {
	t   *testing.T
	dir string
	env []string
}

func newJob(t *testing.T) *job {
	t.Helper()
	y := &tenancy{service: newService(t, sharedPostgres(t))}
	y.start()
	id, token := y.newWebhook(ownOrganization, "default")
	return &job{t: t, dir: t.TempDir(), env: append(os.Environ(),
		"TMPDIR="+t.TempDir(), // some generators leave folders there
		"ANNALS_URL=http://"+y.addr, "ANNALS_PROJECT_KEY="+y.credentials()["ANNALS_PROJECT_KEY"],
		"ANNALS_WEBHOOK_ID="+id, "ANNALS_WEBHOOK_TOKEN="+token)}
}

// run runs a program in the folder of the job, and returns what it printed.
func (j *job) run(program string, args ...string) string {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(j.t.Context(), readyLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = j.dir, j.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		j.t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// finish runs the program that does the main job.
func (j *job) finish(program string, args ...string) {
	j.t.Helper()
	if out := j.run(program, args...); !strings.HasSuffix(out, "the main job is done\n") {
		j.t.Errorf("%s %s did not end its job:\n%s", program, strings.Join(args, " "), out)
	}
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	found, err := filepath.Abs(path)
	runtest.Must(t, err)
	return found
}

func (j *job) pythonClient(folder string) {
	bin := filepath.Join(folder, "python", "bin")
	runtest.Must(j.t, os.WriteFile(filepath.Join(j.dir, "config.yaml"), []byte("post_hooks: []\n"), 0o600))
	said := j.run(filepath.Join(bin, "openapi-python-client"), "generate", "--path", absolute(j.t, document),
		"--output-path", "generated", "--config", "config.yaml")
	if strings.Contains(strings.ToLower(said), "warning") {
		j.t.Errorf("the generator leaves something out:\n%s", said)
	}
	j.env = append(slices.Clone(j.env), "PYTHONPATH="+filepath.Join(j.dir, "generated"))
	j.finish(filepath.Join(bin, "python"), "-B", absolute(j.t, filepath.Join(jobs, "main_job.py")))
}

func (j *job) heyAPI(folder string) {
	programs := filepath.Join(folder, "typescript", "node_modules", ".bin")
	j.run(filepath.Join(programs, "openapi-ts"), "-i", absolute(j.t, document), "-o", "client", "-c", "@hey-api/client-fetch")
	j.compileTypes(programs, "main_job.ts")
	j.finish("node", filepath.Join("built", "main_job.js"))
}

// put copies a program of the jobs into the folder of the job.
func (j *job) put(from, to string) {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(jobs, from))
	runtest.Must(j.t, err)
	to = filepath.Join(j.dir, to)
	runtest.Must(j.t, os.MkdirAll(filepath.Dir(to), 0o700))
	runtest.Must(j.t, os.WriteFile(to, text, 0o600))
}

// compileTypes compiles a program of TypeScript as strictly as the compiler does.
func (j *job) compileTypes(programs, from string, more ...string) {
	j.t.Helper()
	j.put(from, filepath.Base(from))
	j.run(filepath.Join(programs, "tsc"), append([]string{
		"--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable", "--module", "commonjs", "--moduleResolution", "node10",
		"--outDir", "built", filepath.Base(from),
	}, more...)...)
}

// generate runs openapi-generator.
func (j *job) generate(folder, language, to string, options ...string) {
	j.t.Helper()
	jars, err := filepath.Glob(filepath.Join(folder, "openapi-generator", "*.jar"))
	runtest.Must(j.t, err)
	if len(jars) != 1 {
		j.t.Fatalf("the generator is %v", jars)
	}
	j.run("java", append([]string{"-jar", jars[0], "generate", "-i", absolute(j.t, document), "-g", language, "-o", to}, options...)...)
}

func (j *job) generatedPython(folder string) {
	j.generate(folder, "python", "generated")
	j.env = append(slices.Clone(j.env), "PYTHONPATH="+filepath.Join(j.dir, "generated"))
	j.finish(filepath.Join(folder, "pydantic", "bin", "python"), "-B", absolute(j.t, filepath.Join(jobs, "jobs", "job.py")))
}

func (j *job) generatedGo(folder string) {
	j.generate(folder, "go", "annals", "--additional-properties=packageName=annals,isGoSubmodule=false")
	for _, name := range []string{"go.mod", "go.sum", "test"} {
		runtest.Must(j.t, os.RemoveAll(filepath.Join(j.dir, "annals", name)))
	}
	j.goJob("job.go.txt")
}

func (j *job) oapiCodegen(folder string) {
	runtest.Must(j.t, os.Mkdir(filepath.Join(j.dir, "annals"), 0o700))
	j.run(filepath.Join(folder, "oapi-codegen", "oapi-codegen"), "-generate", "types,client", "-package", "annals",
		"-o", filepath.Join("annals", "annals.go"), absolute(j.t, document))
	j.goJob("oapi-codegen.go.txt")
}

// goJob runs a job with the package in the folder annals, whose modules come from the proxy of the machine.
func (j *job) goJob(from string) {
	j.t.Helper()
	j.put(filepath.Join("jobs", from), "main.go")
	runtest.Must(j.t, os.WriteFile(filepath.Join(j.dir, "go.mod"), []byte("module example.com/job\n\ngo 1.25\n"), 0o600))
	j.env = append(slices.Clone(j.env), "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
	j.run("go", "build", "-o", "job", ".")
	j.finish(filepath.Join(j.dir, "job"))
}

func (j *job) generatedFetch(folder string) {
	j.generate(folder, "typescript-fetch", "client")
	j.compileTypes(filepath.Join(folder, "typescript", "node_modules", ".bin"), filepath.Join("jobs", "fetch.ts"))
	j.finish("node", filepath.Join("built", "fetch.js"))
}

func (j *job) openapiFetch(folder string) {
	modules := filepath.Join(folder, "openapi-typescript", "node_modules")
	runtest.Must(j.t, os.Symlink(modules, filepath.Join(j.dir, "node_modules")))
	programs := filepath.Join(modules, ".bin")
	j.run(filepath.Join(programs, "openapi-typescript"), absolute(j.t, document), "-o", "schema.d.ts")
	// The types of openapi-fetch itself need those of Node.
	j.compileTypes(programs, filepath.Join("jobs", "openapi-fetch.ts"), "--skipLibCheck")
	j.finish("node", filepath.Join("built", "openapi-fetch.js"))
}

func (j *job) generatedJava(folder string) {
	j.generate(folder, "java", ".", "--additional-properties=library=native")
	j.put(filepath.Join("jobs", "Job.java"), filepath.Join("src", "main", "java", "Job.java"))
	j.run("mvn", "-q", "-B", "-DskipTests", "compile", "dependency:build-classpath", "-Dmdep.outputFile=classpath",
		"-Dmdep.includeScope=runtime")
	classpath, err := os.ReadFile(filepath.Join(j.dir, "classpath"))
	runtest.Must(j.t, err)
	j.finish("java", "-cp", strings.Join([]string{filepath.Join("target", "classes"), string(classpath)}, string(os.PathListSeparator)), "Job")
}

// program finds the programs of docs/integrate.md, after a comment with the name of their file.
var program = regexp.MustCompile("(?s)<!-- tested: (chat[.][a-z]+) -->\n```[a-z]+\n(.*?)```")

// TestIntegrate runs the chat assistants exactly as they are printed. They remember what a user said when the user
// comes back, and tell nobody else.
func TestIntegrate(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/integrate.md")
	runtest.Must(t, err)
	programs := map[string][]byte{}
	for _, found := range program.FindAllSubmatch(page, -1) {
		programs[string(found[1])] = found[2]
	}
	if len(programs) != 2 {
		t.Fatalf("the page has %d programs", len(programs))
	}
	s := documented.of(t)
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
			runtest.Must(t, os.WriteFile(file, programs[name], 0o600))
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
