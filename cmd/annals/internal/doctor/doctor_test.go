package doctor

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/grammar"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/commands/pipeline/model"
	"github.com/annals-project/annals/eventstore/node/storage"
	"github.com/annals-project/annals/internal/condition"
	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/recallindex/elastic"
)

// holdsFolder names the variable that makes the test binary a process that holds the log of a data folder open.
const holdsFolder = "ANNALS_TEST_HOLDS_FOLDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdsFolder); dir != "" {
		os.Exit(hold(dir))
	}
	pgtest.Main(m)
}

// hold opens a log until the standard input ends.
func hold(dir string) int {
	engine, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := engine.Close(); err != nil {
		return 1
	}
	return 0
}

// nobody is an address that nobody listens on.
const nobody = "127.0.0.1:1"

// sound returns an installation with which nothing is wrong and on which no service runs.
func sound(t *testing.T) Config {
	dir := t.TempDir()
	runtest.Must(t, os.Chmod(dir, 0o700))
	_, err := datafolder.NewHashKey(dir)
	runtest.Must(t, err)
	return Config{
		Service: server.Config{
			Data: datafolder.Folder{Dir: dir}, APIAddr: "127.0.0.1:0", ConsoleAddr: "127.0.0.1:0",
			EventStore: server.Embedded, Postgres: server.Embedded, Derive: true, InForce: map[string]string{},
		},
		Getenv: func(string) string { return "" }, Now: time.Now,
	}
}

func lines(r Report) string {
	var b bytes.Buffer
	r.Print(&b)
	return b.String()
}

func TestExamine_Sound(t *testing.T) {
	r := Examine(t.Context(), sound(t))
	if err := r.Err(); err != nil || len(r.Damaged) > 0 {
		t.Errorf("%v:\n%s", err, lines(r))
	}
	if !strings.Contains(lines(r), "ok      settings: in force: none but the defaults\n") {
		t.Errorf("the settings in force are not listed:\n%s", lines(r))
	}
	for _, check := range []string{"settings", "service", "folder", "ports", "disk", "model", "keys", "clock"} {
		if !strings.Contains(lines(r), "ok      "+check+": ") {
			t.Errorf("%s was not checked:\n%s", check, lines(r))
		}
	}
}

// Each broken installation has the one line that names what is wrong and what helps, and is a failure.
func TestExamine_Broken(t *testing.T) {
	for name, tt := range map[string]struct {
		breaks func(*testing.T, *Config)
		want   string // the line, with what varies left out
	}{
		"wrong settings": {func(_ *testing.T, c *Config) {
			c.Wrong = []string{`ANNALS_API_ADDR is "x": want host:port, such as 127.0.0.1:8080`}
		}, `broken  settings: ANNALS_API_ADDR is "x": want host:port, such as 127.0.0.1:8080 -> correct it`},
		"folder is a file": {func(t *testing.T, c *Config) {
			c.Service.Data.Dir = write(t, filepath.Join(t.TempDir(), "file"), "")
		}, " is a file, or is below one: name a folder with ANNALS_DATA_DIR (--data-dir) -> name another folder"},
		"folder is a backup": {func(t *testing.T, c *Config) {
			write(t, filepath.Join(c.Service.Data.Dir, datafolder.BackupList), "{}")
		}, " is a backup, not a data folder: annals restore"},
		"folder cannot be made": {func(_ *testing.T, c *Config) {
			c.Service.Data.Dir = "/proc/annals/data"
		}, "broken  folder: nothing can be made in /proc: "},
		"folder in use": {holdFolder, "broken  folder: another process has the log in "},
		"port taken": {func(t *testing.T, c *Config) {
			c.Service.APIAddr = listen(t, func(net.Conn) {})
		}, " is in use -> stop what listens there (ss -ltnp names it), or choose another with ANNALS_API_ADDR"},
		"no such address": {func(_ *testing.T, c *Config) {
			c.Service.OpsAddr = "192.0.2.1:9090"
		}, "broken  ports: nothing can listen on 192.0.2.1:9090: "},
		"disk full": {func(_ *testing.T, c *Config) {
			c.Service.MinFreeDisk = 1 << 60
		}, "are required: writes are refused -> make space, or lower ANNALS_MIN_FREE_DISK"},
		"no Postgres": {func(_ *testing.T, c *Config) {
			c.Service.Postgres = "postgres://u:hidden@" + nobody + "/annals"
		}, "connection refused -> start the server, or check host and port in ANNALS_POSTGRES"},
		"wrong password": {func(t *testing.T, c *Config) {
			c.Service.Postgres = "postgres://u:hidden@" + listen(t, refusePassword) + "/annals?sslmode=disable"
		}, "(SQLSTATE 28P01) -> check the user and the password in ANNALS_POSTGRES"},
		"no database": {func(t *testing.T, c *Config) {
			u, err := url.Parse(pgtest.URL(t))
			runtest.Must(t, err)
			u.Path = "/none_of_that_name"
			c.Service.Postgres = u.String()
		}, "(SQLSTATE 3D000) -> create the database with createdb, or name another in ANNALS_POSTGRES"},
		"no event store": {func(_ *testing.T, c *Config) {
			c.Service.EventStore = "esdb://" + nobody + "?tls=false"
		}, "-> start it, or check the hosts, tlsCAFile and the user in ANNALS_EVENTSTORE"},
		"no Elasticsearch": {func(_ *testing.T, c *Config) {
			c.Service.Index = &elastic.Options{URL: "http://" + nobody}
		}, "broken  elasticsearch: the Elasticsearch cannot be used: "},
		"key of the model": {func(t *testing.T, c *Config) {
			refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			}))
			t.Cleanup(refuses.Close)
			c.Service.Model = model.Endpoint{URL: refuses.URL, Name: "small", Key: "hidden"}
		}, "ANNALS_MODEL_KEY"},
		"hash key lost": {func(t *testing.T, c *Config) {
			runtest.Must(t, os.Mkdir(filepath.Join(c.Service.Data.Dir, "log"), 0o700))
			runtest.Must(t, os.Remove(filepath.Join(c.Service.Data.Dir, datafolder.HashKeyFile)))
		}, "has no hash key -> restore hash.key from a backup, or set ANNALS_HASH_KEY"},
		"hash key damaged": {func(t *testing.T, c *Config) {
			write(t, filepath.Join(c.Service.Data.Dir, datafolder.HashKeyFile), "abc")
		}, "does not hold a key of 32 bytes as base64"},
		"two hash keys": {func(_ *testing.T, c *Config) {
			c.Service.Data.HashKey = strings.Repeat("0f", datafolder.SecretBytes)
		}, "broken  keys: ANNALS_HASH_KEY is not the key in "},
		"keys open to others": {func(t *testing.T, c *Config) {
			runtest.Must(t, os.Chmod(filepath.Join(c.Service.Data.Dir, datafolder.HashKeyFile), 0o644))
		}, "broken  keys: other users of this machine may read "},
		"certificate ended": {func(t *testing.T, c *Config) {
			c.Service.TLSCert, c.Service.TLSKey = certificate(t, time.Now().Add(-time.Hour))
		}, " -> renew it; the service reads both files again when they change"},
		"key of another certificate": {func(t *testing.T, c *Config) {
			c.Service.TLSCert, _ = certificate(t, time.Now().Add(time.Hour))
			_, c.Service.TLSKey = certificate(t, time.Now().Add(time.Hour))
		}, " -> name a certificate and its key with ANNALS_TLS_CERT and ANNALS_TLS_KEY"},
		"certificate of another name": {func(t *testing.T, c *Config) {
			c.Service.TLSCert, c.Service.TLSKey = certificate(t, time.Now().Add(time.Hour))
			c.Service.URLs.API = "https://memory.example.com"
		}, " -> get one for that name, or correct ANNALS_API_URL"},
		"clock set back": {func(_ *testing.T, c *Config) {
			c.Now = func() time.Time { return time.Now().Add(-48 * time.Hour) }
		}, " -> let NTP set the clock"},
		"proxy away": {func(_ *testing.T, c *Config) {
			c.Getenv = func(name string) string { return map[string]string{"HTTPS_PROXY": "http://u:hidden@" + nobody}[name] }
		}, "broken  proxy: the proxy that HTTPS_PROXY names does not answer: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sound(t)
			tt.breaks(t, &c)
			check(t, Examine(t.Context(), c), tt.want)
		})
	}
}

// check checks that a report fails by one line, which has what is wanted and a remedy.
func check(t *testing.T, r Report, want string) {
	t.Helper()
	var broken []string
	for line := range strings.Lines(lines(r)) {
		if strings.HasPrefix(line, "broken ") {
			broken = append(broken, line)
		}
	}
	if len(broken) != 1 || !strings.Contains(broken[0], want) || !strings.Contains(broken[0], " -> ") || r.Err() == nil {
		t.Errorf("want one broken line with %q and a remedy, got %v:\n%s", want, r.Err(), lines(r))
	}
	if strings.Contains(lines(r), "hidden") {
		t.Errorf("a secret is shown:\n%s", lines(r))
	}
}

// A database that can be used is no finding but its version.
func TestExamine_Database(t *testing.T) {
	c := sound(t)
	c.Service.Postgres = pgtest.URL(t)
	r := Examine(t.Context(), c)
	if err := r.Err(); err != nil || !strings.Contains(lines(r), "ok      postgres: version ") {
		t.Errorf("%v:\n%s", err, lines(r))
	}
	c.Now = func() time.Time { return time.Now().Add(time.Hour) }
	check(t, Examine(t.Context(), c), "the clock of postgres differs from this one by -1h0m0s")
}

// damaged are the damaged streams of a service.
type damaged []datapoints.DamagedStream

func (d damaged) EachDamaged(_ context.Context, emit func(datapoints.DamagedStream) error) error {
	for _, s := range d {
		if err := emit(s); err != nil {
			return err
		}
	}
	return nil
}

// Of a running service, its own account of itself is reported.
func TestExamine_Running(t *testing.T) {
	public := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(public.Close)
	for name, tt := range map[string]struct {
		breaks  func(*Config, *operatorapi.Status)
		streams damaged
		want    string
	}{
		"not ready": {func(_ *Config, is *operatorapi.Status) {
			is.NotReady = []client.NotReady{{Part: "postgres", Reason: "it does not answer", Cause: "connection refused"}}
		}, nil, "broken  service: it is not ready: postgres: it does not answer: connection refused -> deploy/RUNBOOK.md#health"},
		"disk full": {func(_ *Config, is *operatorapi.Status) {
			is.DiskFree = new(uint64(1))
		}, nil, "broken  disk: 1 B are free and 1.0 GB are required"},
		"public address": {func(_ *Config, is *operatorapi.Status) {
			is.Settings = map[string]string{"ANNALS_API_URL": public.URL, "ANNALS_TRUSTED_PROXIES": "127.0.0.0/8"}
		}, nil, " does not lead to the service: "},
		"damaged stream": {
			func(*Config, *operatorapi.Status) {},
			damaged{{Stream: "project-1", Damage: datapoints.StreamAged, Position: 7}},
			"broken  streams: somebody else set an age for the stream project-1 (position 7) -> take the age out of its metadata",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := sound(t)
			is := operatorapi.Status{Details: condition.Details{
				Version: "1.2.3", DiskFree: new(uint64(5e9)), DiskRequired: new(uint64(1e9)),
			}}
			tt.breaks(&c, &is)
			operatortest.Serve(t, c.Service.Data.Dir, append(operatorapi.DamageRoutes(tt.streams),
				operatorapi.StatusRoute(func(context.Context) operatorapi.Status { return is }))...)
			r := Examine(t.Context(), c)
			check(t, r, tt.want)
			if len(r.Damaged) != len(tt.streams) {
				t.Errorf("damaged streams: %v", r.Damaged)
			}
		})
	}
}

// A service that cannot be asked is not taken for one that does not run.
func TestExamine_OtherService(t *testing.T) {
	c := sound(t)
	operatortest.Serve(t, c.Service.Data.Dir, operatorapi.DamageRoutes(damaged{})...)
	check(t, Examine(t.Context(), c), "-> run annals doctor as the user of the service, of the same version")
}

// Notes are no failure: variables that nothing reads, settings that the running service does not have, remarks.
func TestExamine_Notes(t *testing.T) {
	c := sound(t)
	c.Unknown = []grammar.Unknown{{Name: "ANNALS_API_ADR", Nearest: "ANNALS_API_ADDR"}, {Name: "ANNALS_SPEED"}}
	c.Service.InForce = map[string]string{"ANNALS_LOG_LEVEL": "debug", "ANNALS_PIPELINE": "off", "ANNALS_DATA_DIR": "x"}
	operatortest.Serve(t, c.Service.Data.Dir, append(operatorapi.DamageRoutes(damaged{}),
		operatorapi.StatusRoute(func(context.Context) operatorapi.Status {
			return operatorapi.Status{
				Remarks:  client.Remarks{ServersDown: []string{"the model cannot be used"}},
				Settings: map[string]string{"ANNALS_PIPELINE": "off"},
			}
		}))...)
	r := Examine(t.Context(), c)
	if err := r.Err(); err != nil {
		t.Errorf("%v:\n%s", err, lines(r))
	}
	for _, want := range []string{
		"note    settings: no setting reads ANNALS_API_ADR -> is it ANNALS_API_ADDR?\n",
		"note    settings: no setting reads ANNALS_SPEED -> remove it\n",
		"note    settings: ANNALS_LOG_LEVEL is debug here, and the default in the running service -> restart",
		"note    service: the model cannot be used -> deploy/RUNBOOK.md#health",
	} {
		if !strings.Contains(lines(r), want) {
			t.Errorf("no line %q in\n%s", want, lines(r))
		}
	}
	if strings.Contains(lines(r), "ANNALS_PIPELINE is") || r.Settings["ANNALS_PIPELINE"] != "off" ||
		!strings.Contains(lines(r), "ok      settings: in force: ANNALS_PIPELINE=off\n") {
		t.Errorf("settings in force %v:\n%s", r.Settings, lines(r))
	}
}

// Each damage has something that helps.
func TestCures(t *testing.T) {
	for _, d := range []string{
		datapoints.StreamDeleted, datapoints.StreamHidden, datapoints.StreamTruncated, datapoints.StreamAged,
		datapoints.StreamCounted,
	} {
		if cures[d] == "" || damages[d] == "" {
			t.Errorf("nothing helps a stream that was %s", d)
		}
	}
}

// write makes a file and returns its path.
func write(t *testing.T, path, text string) string {
	t.Helper()
	runtest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// listen serves connections until the test ends, and returns the address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	runtest.Must(t, err)
	t.Cleanup(func() { runtest.Must(t, l.Close()) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serve(conn)
			_ = conn.Close() // the client may have closed it
		}
	}()
	return l.Addr().String()
}

// refusePassword answers the first message of a client of Postgres as a server does that knows another password.
func refusePassword(conn net.Conn) {
	const fields = "SFATAL\x00VFATAL\x00C28P01\x00Mno\x00\x00"
	if _, err := conn.Read(make([]byte, 1024)); err == nil {
		_, _ = conn.Write(append([]byte{'E', 0, 0, 0, byte(4 + len(fields))}, fields...)) // the client may be gone
	}
}

// holdFolder lets another process hold the log of the data folder open.
func holdFolder(t *testing.T, c *Config) {
	other := exec.CommandContext(runtest.Context(t), os.Args[0])
	other.Env = append(os.Environ(), holdsFolder+"="+filepath.Join(c.Service.Data.Dir, "log"))
	in, err := other.StdinPipe()
	runtest.Must(t, err)
	out, err := other.StdoutPipe()
	runtest.Must(t, err)
	runtest.Must(t, other.Start())
	t.Cleanup(func() {
		runtest.Must(t, in.Close())
		runtest.Must(t, other.Wait())
	})
	text := make([]byte, len("open"))
	if _, err := io.ReadFull(out, text); err != nil || string(text) != "open" {
		t.Fatalf("the other process: %q, %v", text, err)
	}
}

// certificate makes the files of a certificate for localhost with its key.
func certificate(t *testing.T, end time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	runtest.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: end.Add(-30 * 24 * time.Hour), NotAfter: end,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	runtest.Must(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	runtest.Must(t, err)
	dir := t.TempDir()
	return write(t, filepath.Join(dir, "cert.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})))
}
