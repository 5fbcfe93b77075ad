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

func load(t *testing.T, env []string) (*types.Project, error) {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"}, cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
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
