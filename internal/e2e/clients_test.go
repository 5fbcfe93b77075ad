package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/runtest"
)

// testClients names the folder into which deploy/clients/install.sh has installed the generators.
const testClients = "ANNALS_TEST_CLIENTS"

// jobs is the folder of the programs that use the generated clients.
const jobs = "../../deploy/clients"

// generatorOf returns the folder of an installed generator. Without the setting, and without the
// generator, the test is skipped.
func generatorOf(t *testing.T, language string) string {
	t.Helper()
	folder := os.Getenv(testClients)
	if folder == "" {
		t.Skip(testClients + " names no folder: make test-clients sets it")
	}
	dir := filepath.Join(folder, language)
	if _, err := os.Stat(filepath.Join(dir, "versions")); err != nil {
		t.Skipf("the generator of %s clients is not installed: %v", language, err)
	}
	return dir
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

func TestClients_Python(t *testing.T) {
	t.Parallel()
	generator := generatorOf(t, "python")
	j := newJob(t)
	runtest.Must(t, os.WriteFile(filepath.Join(j.dir, "config.yaml"), []byte("post_hooks: []\n"), 0o600))
	said := j.run(filepath.Join(generator, "bin", "openapi-python-client"), "generate", "--path", absolute(t, document),
		"--output-path", "generated", "--config", "config.yaml")
	if strings.Contains(strings.ToLower(said), "warning") {
		t.Errorf("the generator leaves something out:\n%s", said)
	}
	j.env = append(j.env, "PYTHONPATH="+filepath.Join(j.dir, "generated"))
	j.finish(filepath.Join(generator, "bin", "python"), "-B", absolute(t, filepath.Join(jobs, "main_job.py")))
}

func TestClients_TypeScript(t *testing.T) {
	t.Parallel()
	generator := generatorOf(t, "typescript")
	programs := filepath.Join(generator, "node_modules", ".bin")
	j := newJob(t)
	j.run(filepath.Join(programs, "openapi-ts"), "-i", absolute(t, document), "-o", "client", "-c", "@hey-api/client-fetch")
	source, err := os.ReadFile(filepath.Join(jobs, "main_job.ts"))
	runtest.Must(t, err)
	runtest.Must(t, os.WriteFile(filepath.Join(j.dir, "main_job.ts"), source, 0o600))
	j.run(filepath.Join(programs, "tsc"), "--strict", "--target", "es2022", "--lib", "es2022,dom,dom.iterable",
		"--module", "commonjs", "--moduleResolution", "node10", "--outDir", "built", "main_job.ts")
	j.finish("node", filepath.Join("built", "main_job.js"))
}
