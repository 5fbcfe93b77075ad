package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
