package server

import (
	"archive/zip"
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/audit/prove"
	auditstate "github.com/annals-project/annals/projections/audit/state"
)

// What a management key gets of the audit log verifies by itself, and the page and the socket show the same tree.
func TestServer_AuditLogOverTheAPI(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	project, management := h.keys()
	organization := h.organizations()[0].ID.String()
	send := h.send(project, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	c, err := client.New(h.urls.API, management)
	runtest.Must(t, err)
	var files []byte
	runtest.Await(t, "a checkpoint covers the send", func() bool {
		files, err = c.GetProofs(t.Context(), client.ProofsRequest{Organization: organization, Ingestion: send})
		return err == nil
	})
	text, err := c.GetAuditPolicy(t.Context(), organization)
	runtest.Must(t, err)
	policy, err := proof.ParsePolicy(text)
	runtest.Must(t, err)
	from, err := zip.NewReader(bytes.NewReader(files), int64(len(files)))
	if err != nil || len(from.File) == 0 {
		t.Fatalf("%v, %v", from, err)
	}
	for _, f := range from.File {
		one, err := proof.Parse(h.unpacked(f))
		runtest.Must(t, err)
		if said, err := one.Verify(policy); err != nil {
			t.Errorf("%s: %+v, %v", f.Name, said, err)
		}
	}
	checkpoint, err := c.GetCheckpoint(t.Context(), organization)
	runtest.Must(t, err)
	signed, err := policy.Open(checkpoint)
	runtest.Must(t, err)
	tile, err := c.GetTile(t.Context(), client.TileRequest{Organization: organization, Level: "entries", Path: "000.p/1"})
	if err != nil || len(tile) != 34 || signed.Size < 2 {
		t.Errorf("a bundle of one entry has %d bytes, of %d leaves, %v", len(tile), signed.Size, err)
	}
	var states []auditstate.State
	runtest.Must(t, operatorapi.AuditStatus.Call(t.Context(), operatorapi.Dial(h.dir), operatorapi.AuditRequest{All: true},
		func() {}, func(s auditstate.State) error { states = append(states, s); return nil }))
	if len(states) != 2 || states[0].Organization != uuid.Nil || states[1].Organization.String() != organization ||
		states[1].Events < signed.Size || states[1].Name == "" || states[0].Events == 0 {
		t.Errorf("the states are %+v", states)
	}
	if got := h.fetch(http.MethodGet, h.urls.API+api+"/audit/"+organization+"/checkpoint", "", ""); got.status != 401 {
		t.Errorf("without a key: %d", got.status)
	}
}

// unpacked reads a file of a zip.
func (h *harness) unpacked(f *zip.File) []byte {
	h.t.Helper()
	from, err := f.Open()
	runtest.Must(h.t, err)
	text, err := io.ReadAll(from)
	runtest.Must(h.t, errors.Join(err, from.Close()))
	return text
}

// The commands of operators write what annals-verify reads.
func TestServer_AuditLogOfOperators(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := newHarness(t)
	h.start()
	project, _ := h.keys()
	h.send(project, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	socket := operatorapi.Dial(h.dir)
	call := func(do operatorapi.Stream[operatorapi.ProveRequest, prove.File]) (files []prove.File, err error) {
		in := operatorapi.ProveRequest{Project: "default", Kind: prove.Source, ID: "a"}
		return files, do.Call(t.Context(), socket, in, func() {}, func(f prove.File) error {
			files = append(files, f)
			return nil
		})
	}
	var files []prove.File
	runtest.Await(t, "a checkpoint covers the data point", func() (ok bool) {
		var err error
		files, err = call(operatorapi.Prove)
		return err == nil
	})
	salted, err := call(operatorapi.ProveWithSalt)
	if err != nil || len(salted) != len(files) || len(files) == 0 {
		t.Fatalf("%d files with the salt, %d without, %v", len(salted), len(files), err)
	}
	for i := range files {
		if bytes.Contains(files[i].Data, []byte("tea")) || files[i].Name == salted[i].Name {
			t.Errorf("%s and %s have one name, or it shows a text", files[i].Name, salted[i].Name)
		}
	}
	before, err := operatorapi.RotateAuditKey.Call(t.Context(), socket, operatorapi.AuditRequest{})
	runtest.Must(t, err)
	for _, deployment := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "bundle")
		to, err := auditfiles.NewFolder(dir)
		runtest.Must(t, err)
		in := operatorapi.AuditExport{
			AuditRequest: operatorapi.AuditRequest{Deployment: deployment}, To: time.Now().Add(time.Hour),
		}
		runtest.Must(t, errors.Join(socket.ExportAudit(t.Context(), in, to), to.Close()))
		text, err := os.ReadFile(filepath.Join(dir, auditfiles.PolicyFile))
		runtest.Must(t, err)
		policy, err := proof.ParsePolicy(text)
		runtest.Must(t, err)
		runtest.Must(t, auditfiles.Check(policy, []string{dir}, nil, func(auditfiles.Found) {}))
		if !deployment && !strings.Contains(string(text), before.Verifier) {
			t.Errorf("the policy %s lacks the new key %s", text, before.Verifier)
		}
	}
	unknown := operatorapi.AuditExport{AuditRequest: operatorapi.AuditRequest{Organization: "none"}}
	if err := socket.ExportAudit(t.Context(), unknown, nil); !errors.Is(err, operatorapi.ErrRefused) {
		t.Errorf("the bundle of no organization: %v", err)
	}
}
