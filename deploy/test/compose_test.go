package deploytest

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/prometheus/prometheus/config"
	// The kind of discovery that prometheus.yaml uses.
	_ "github.com/prometheus/prometheus/discovery/dns"
)

// The Compose file is one that "docker compose" takes: it is read with its library, every variable set
// as in .env.example, and every profile on.
func TestCompose_Loads(t *testing.T) {
	project, err := load(t, environment(t))
	if err != nil {
		t.Fatal(err)
	}
	oneShot := []string{"certificates"}
	for name, s := range project.Services {
		if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" && !strings.HasPrefix(s.Image, "annals:") {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		if s.Deploy == nil || s.Deploy.Resources.Limits == nil || s.Deploy.Resources.Limits.MemoryBytes == 0 {
			t.Errorf("%s has no limit of memory", name)
		}
		if slices.Contains(oneShot, name) {
			continue
		}
		if s.HealthCheck == nil || len(s.HealthCheck.Test) < 2 || s.Restart != "unless-stopped" {
			t.Errorf("%s has no health check or is not started again", name)
		}
	}
	for _, role := range []string{"write", "read", "projector", "pipeline", "console"} {
		s, err := project.GetService(role)
		if err != nil {
			t.Error(err)
			continue
		}
		if s.Deploy.Replicas == nil || *s.Deploy.Replicas != 2 || value(s, "ANNALS_ROLES") != role {
			t.Errorf("%s: %v processes with the roles %s", role, s.Deploy.Replicas, value(s, "ANNALS_ROLES"))
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.User != "65532:65532" {
			t.Errorf("%s may do more than it needs", role)
		}
		for name := range s.Environment {
			if strings.HasPrefix(name, "ANNALS_") && !slices.Contains(settings(t), name) {
				t.Errorf("%s: the service has no setting %s", role, name)
			}
		}
		for _, setting := range []string{"ANNALS_EVENTSTORE", "ANNALS_POSTGRES", "ANNALS_INDEX"} {
			checkHosts(t, project, role, setting, value(s, setting))
		}
	}
}

// Each secret must be set: without one nothing starts, and the message names it.
func TestCompose_SecretMissing(t *testing.T) {
	all := environment(t)
	for _, name := range []string{
		"ANNALS_HASH_KEY", "ANNALS_SEAL_KEY", "EVENTSTORE_ADMIN_PASSWORD", "EVENTSTORE_OPS_PASSWORD", "POSTGRES_PASSWORD",
		"POSTGRES_REPLICA_PASSWORD", "ELASTIC_PASSWORD", "GRAFANA_PASSWORD",
	} {
		t.Run(name, func(t *testing.T) {
			without := slices.DeleteFunc(slices.Clone(all), func(line string) bool { return strings.HasPrefix(line, name+"=") })
			if _, err := load(t, without); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("loads without it: %v", err)
			}
		})
	}
}

// The certificates are valid for the servers that the Compose file names, with the authority that the
// processes trust, and each key is for one user only. A second run changes nothing.
func TestCompose_Certificates(t *testing.T) {
	project, err := load(t, environment(t))
	if err != nil {
		t.Fatal(err)
	}
	job, err := project.GetService("certificates")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func() {
		out, err := exec.Command("../compose/certificates.sh", append([]string{dir}, job.Command...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	run()
	authority, err := os.ReadFile(filepath.Join(dir, "ca", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	before := map[string]string{}
	for _, server := range job.Command {
		name, _, _ := strings.Cut(server, ":")
		if _, err := project.GetService(name); err != nil {
			t.Error(err)
		}
		file, key := filepath.Join(dir, name, "node.crt"), filepath.Join(dir, name, "node.key")
		if _, err := tls.LoadX509KeyPair(file, key); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before[file] = string(text)
		block, _ := pem.Decode(text)
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{name, "localhost", "127.0.0.1"} {
			for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
				how := x509.VerifyOptions{DNSName: host, Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}
				if _, err := certificate.Verify(how); err != nil {
					t.Errorf("%s as %s: %v", name, host, err)
				}
			}
		}
		if common := certificate.Subject.CommonName; strings.HasPrefix(name, "eventstore") && common != "eventstoredb-node" {
			t.Errorf("%s has the common name %s", name, common)
		}
		if info, err := os.Stat(key); err != nil || info.Mode().Perm() != 0o400 {
			t.Errorf("%s: %v, %v", key, info, err)
		}
	}
	run()
	for file, text := range before {
		if now, err := os.ReadFile(file); err != nil || string(now) != text {
			t.Errorf("a second run changed %s: %v", file, err)
		}
	}
}

// Prometheus accepts its configuration, which scrapes every role on the port of the image.
func TestPrometheus_Configuration(t *testing.T) {
	if _, err := config.Load(read(t, "prometheus/prometheus.yaml"), nil); err != nil {
		t.Fatal(err)
	}
}

// Every setting of the program can be named in .env. Some are fixed: those of the image, and those that the file itself
// decides.
func TestCompose_PassesSettings(t *testing.T) {
	ofImage := regexp.MustCompile(`(?m)^ENV (ANNALS_\w+)=`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	for file, c := range map[string]struct {
		service string
		fixed   []string
	}{
		"compose.yaml": {"write", []string{
			"ANNALS_EVENTSTORE", "ANNALS_POSTGRES", "ANNALS_ROLES", "ANNALS_MIN_FREE_DISK", // of its servers
			"ANNALS_TLS_CERT", "ANNALS_TLS_KEY", // a proxy is in front
		}},
		"compose.small.yaml": {"annals", []string{
			"ANNALS_EVENTSTORE", "ANNALS_POSTGRES", "ANNALS_INDEX", "ANNALS_ROLES",
			"ANNALS_POSTGRES_REPLICA", "ANNALS_INDEX_USER", "ANNALS_INDEX_PASSWORD", "ANNALS_INDEX_KEY", "ANNALS_INDEX_CA",
			"ANNALS_INDEX_NAME", // of servers that it has none of
			"ANNALS_TLS_CERT", "ANNALS_TLS_KEY",
		}},
	} {
		env := environment(t)
		for _, name := range settings(t) {
			env = append(slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }), name+"=marker")
		}
		project, err := loadFile(t, file, env)
		if err != nil {
			t.Fatal(err)
		}
		s, err := project.GetService(c.service)
		if err != nil {
			t.Fatal(err)
		}
		fixed := slices.Clone(c.fixed)
		for _, found := range ofImage {
			fixed = append(fixed, found[1])
		}
		for _, name := range settings(t) {
			if got := value(s, name); got != "marker" && !slices.Contains(fixed, name) {
				t.Errorf("%s: %s of .env has no effect: %q", file, name, got)
			}
		}
	}
}

// The small file has two services with limits and health checks, which trust each other and nobody outside.
func TestComposeSmall_Loads(t *testing.T) {
	project, err := loadFile(t, "compose.small.yaml", environment(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Services) != 2 {
		t.Errorf("%d services", len(project.Services))
	}
	for name, s := range project.Services {
		if s.Deploy == nil || s.Deploy.Resources.Limits == nil || s.Deploy.Resources.Limits.MemoryBytes == 0 ||
			s.HealthCheck == nil || s.Restart != "unless-stopped" {
			t.Errorf("%s has no limit of memory, no health check, or is not started again", name)
		}
	}
	annals, err := project.GetService("annals")
	if err != nil {
		t.Fatal(err)
	}
	if !annals.ReadOnly || !slices.Equal(annals.CapDrop, []string{"ALL"}) || annals.User != "65532:65532" {
		t.Error("annals may do more than it needs")
	}
	checkHosts(t, project, "annals", "ANNALS_POSTGRES", value(annals, "ANNALS_POSTGRES"))
	for name := range annals.Environment {
		if !slices.Contains(settings(t), name) {
			t.Errorf("the service has no setting %s", name)
		}
	}
	for _, name := range []string{"ANNALS_HASH_KEY", "ANNALS_SEAL_KEY", "POSTGRES_PASSWORD"} {
		without := slices.DeleteFunc(environment(t), func(line string) bool { return strings.HasPrefix(line, name+"=") })
		if _, err := loadFile(t, "compose.small.yaml", without); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("loads without %s: %v", name, err)
		}
	}
}

// The script fills in what is empty, each secret with another value, for its owner alone, and never changes a value.
func TestCompose_Env(t *testing.T) {
	file := filepath.Join(t.TempDir(), ".env")
	run := func() string {
		t.Helper()
		out, err := exec.Command("../compose/env.sh", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := run()
	values := map[string]string{}
	for _, found := range regexp.MustCompile(`(?m)^(\w+)=([0-9a-f]{64})$`).FindAllStringSubmatch(first, -1) {
		values[found[2]] = found[1]
	}
	empty := regexp.MustCompile(`(?m)^\w+=$`)
	if want := len(empty.FindAllString(read(t, ".env.example"), -1)); len(values) != want || empty.MatchString(first) {
		t.Errorf("%d secrets, want %d:\n%s", len(values), want, first)
	}
	if run() != first {
		t.Error("a second run changed the file")
	}
	own := "ANNALS_HASH_KEY=mine\nANNALS_MODEL_KEY=\nPOSTGRES_PASSWORD=\n"
	if err := os.WriteFile(file, []byte(own), 0o644); err != nil {
		t.Fatal(err)
	}
	got := run()
	if !strings.HasPrefix(got, "ANNALS_HASH_KEY=mine\nANNALS_MODEL_KEY=\nPOSTGRES_PASSWORD=") ||
		!regexp.MustCompile(`(?m)^ANNALS_SEAL_KEY=[0-9a-f]{64}$`).MatchString(got) || strings.Contains(got, "POSTGRES_PASSWORD=\n") {
		t.Errorf("a file with values became:\n%s", got)
	}
}

func load(t *testing.T, env []string) (*types.Project, error) {
	t.Helper()
	return loadFile(t, "compose.yaml", env)
}

func loadFile(t *testing.T, file string, env []string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../" + file}, cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	if err != nil {
		return nil, err
	}
	return options.LoadProject(t.Context())
}

// environment returns the variables of .env.example, with a value for each that is left empty there.
func environment(t *testing.T) []string {
	t.Helper()
	var env []string
	lines := bufio.NewScanner(strings.NewReader(read(t, ".env.example")))
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "=")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if value == "" {
			value = "x1"
		}
		env = append(env, name+"="+value)
	}
	return env
}

func value(s types.ServiceConfig, name string) string {
	if v := s.Environment[name]; v != nil {
		return *v
	}
	return ""
}

// checkHosts reports the hosts of an address that no service of the network has.
func checkHosts(t *testing.T, project *types.Project, role, setting, address string) {
	t.Helper()
	parts := regexp.MustCompile(`^[a-z+]+://(?:[^@/]+@)?([^/?]+)`).FindStringSubmatch(address)
	if parts == nil {
		t.Errorf("%s: %s is %q", role, setting, address)
		return
	}
	for _, host := range strings.Split(parts[1], ",") {
		u, err := url.Parse("//" + host)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := project.GetService(u.Hostname()); err != nil {
			t.Errorf("%s: %s names %s: %v", role, setting, host, err)
		}
	}
}

// settings returns the variables that "annals serve" reads, from its source.
func settings(t *testing.T) []string {
	t.Helper()
	var names []string
	files, err := filepath.Glob("../../cmd/annals/settings*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("settings: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`setting:"(ANNALS_\w+)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, found[1])
		}
	}
	return names
}
