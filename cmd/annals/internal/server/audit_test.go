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
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/commands/audit"
	auditlog "github.com/annals-project/annals/domain/audit"
	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auditfiles"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/witnesstest"
	"github.com/annals-project/annals/projections/audit/prove"
	auditstate "github.com/annals-project/annals/projections/audit/state"
	"github.com/annals-project/annals/projections/audit/verify"
	"github.com/annals-project/annals/projections/runner"
)

// signedTree waits until a tree of an origin with a number of keys has a checkpoint of what happened, which a witness
// signed, and returns it.
func (h *harness) signedTree(organization uuid.UUID, number, keys int, by *witnesstest.Witness) (t audit.Tree) {
	h.t.Helper()
	logID, err := runner.LogIDOf(h.storage.store, h.storage.codec)(h.t.Context())
	runtest.Must(h.t, err)
	origin := auditlog.Origin(logID, organization, number)
	runtest.Await(h.t, "the tree is signed and cosigned", func() (ok bool) {
		var err error
		t, ok, err = h.audit.signer.Trees.Tree(h.t.Context(), organization)
		runtest.Must(h.t, err)
		return ok && t.Origin == origin && len(t.Verifiers) == keys && t.Since.IsZero() && by.HasSigned(t.Checkpoint)
	})
	return t
}

// A service signs what happens, copies it and has it cosigned, and each tree of a restored log is another origin.
func TestServer_AuditLog(t *testing.T) {
	unraced(t)
	t.Parallel()
	witness, anchor := witnesstest.New(t, "w.example/one"), t.TempDir()
	h := newHarness(t)
	h.set = func(cfg *Config) {
		cfg.Audit = AuditConfig{Every: 20 * time.Millisecond, Anchor: anchor, Policy: witnesstest.Policy(t, witness)}
	}
	h.start()
	h.sendTeaAndRecall()
	organization := h.organizations()[0].ID
	trees := map[uuid.UUID]audit.Tree{}
	for _, id := range []uuid.UUID{organization, uuid.Nil} { // and that of the deployment
		trees[id] = h.signedTree(id, 1, 1, witness)
		runtest.Await(t, "the anchor has the checkpoint", func() bool {
			text, err := os.ReadFile(filepath.Join(anchor, filepath.FromSlash(trees[id].Origin), "checkpoint"))
			return err == nil && witness.HasSigned(string(text))
		})
	}
	h.fetch(http.MethodGet, h.urls.API+"/metrics", "", "").want(t, http.StatusOK, "\nannals_audit_checkpoint_lag_seconds ",
		"\nannals_audit_trees_differ 0\n", "\nannals_audit_anchor_lag_seconds ",
		"\nannals_audit_witness_lag_seconds{witness=\"w.example/one\"} ")
	if list := h.audit.conditions(); len(list) > 0 {
		t.Errorf("%+v", list)
	}
	_, err := h.audit.signer.Rotate(t.Context(), organization)
	runtest.Must(t, err)
	h.sendTeaAndRecall()
	h.signedTree(organization, 1, 2, witness)
	backup := filepath.Join(t.TempDir(), "backup")
	_, err = h.backups.Make(t.Context(), backup)
	runtest.Must(t, err)
	h.stop()

	next := newHarness(t)
	next.set = h.set
	_, err = datafolder.Restore(t.Context(), backup, next.dir)
	runtest.Must(t, err)
	next.start()
	next.sendTeaAndRecall()
	next.signedTree(organization, 2, 1, witness)
	events, err := next.journal.ReadFrom(t.Context(), stream.Name(stream.Audit, organization), 0)
	runtest.Must(t, err)
	former := ""
	for _, e := range events {
		if key, is := e.Event.(*auditlog.KeyAdded); is {
			former = key.Former
		}
	}
	if !strings.HasPrefix(former, trees[organization].Origin+"\n") {
		t.Errorf("the origin begins after the checkpoint %q", former)
	}
}

// What a management key gets of the audit log verifies by itself, what the commands of operators write too, and the
// pages show the same tree.
func TestServer_AuditLogIsServed(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := startConsole(t)
	project, management := h.keys()
	organization := h.organizations()[0].ID
	send := h.send(project, "/ingest", "completed", point{"id": "a", "content": "Ana likes tea."})
	h.checkBeforeTheFirstCheckpoint(organization)
	c, err := client.New(h.urls.API, management, client.WithMaxAttempts(1))
	runtest.Must(t, err)
	var files []byte
	runtest.Await(t, "a checkpoint covers the send", func() bool {
		runtest.Must(t, h.audit.signer.Pass(t.Context()))
		files, err = c.GetProofs(t.Context(), client.ProofsRequest{Organization: organization.String(), Ingestion: send})
		return err == nil
	})
	text, err := c.GetAuditPolicy(t.Context(), organization.String())
	runtest.Must(t, err)
	policy, err := proof.ParsePolicy(text)
	runtest.Must(t, err)
	verifyProofs(t, policy, files)
	checkpoint, err := c.GetCheckpoint(t.Context(), organization.String())
	runtest.Must(t, err)
	signed, err := policy.Open(checkpoint)
	runtest.Must(t, err)
	first := client.TileRequest{Organization: organization.String(), Level: "entries", Path: "000.p/1"}
	if tile, err := c.GetTile(t.Context(), first); err != nil || len(tile) != 34 || signed.Size < 2 {
		t.Errorf("a bundle of one entry has %d bytes, of %d leaves, %v", len(tile), signed.Size, err)
	}
	h.checkAuditOfOperators(organization, signed.Size, checkpoint)
	h.checkAuditPages(policy, send)
}

// verifyProofs verifies the proofs in a zip.
func verifyProofs(t testing.TB, policy proof.Policy, files []byte) {
	t.Helper()
	from, err := zip.NewReader(bytes.NewReader(files), int64(len(files)))
	if err != nil || len(from.File) == 0 {
		t.Fatalf("%v, %v", from, err)
	}
	for _, f := range from.File {
		file, err := f.Open()
		runtest.Must(t, err)
		text, err := io.ReadAll(file)
		runtest.Must(t, errors.Join(err, file.Close()))
		one, err := proof.Parse(text)
		runtest.Must(t, err)
		if said, err := one.Verify(policy); err != nil {
			t.Errorf("%s: %+v, %v", f.Name, said, err)
		}
	}
}

// checkBeforeTheFirstCheckpoint verifies a log that nothing signed yet.
func (h *consoleHarness) checkBeforeTheFirstCheckpoint(organization uuid.UUID) {
	h.t.Helper()
	report := h.verifiedAudit(nil)
	if report.Finding != nil || report.Uncovered() == 0 || len(report.Trees) < 2 {
		h.t.Errorf("before the first checkpoint: %+v", report)
	}
	h.get("admin", "/settings/audit").want(h.t, http.StatusOK, "none yet")
	h.wants("", http.MethodGet, api+"/audit/"+organization.String()+"/checkpoint", nil, http.StatusUnauthorized, "")
}

// verifiedAudit verifies by the socket.
func (h *harness) verifiedAudit(since []byte) (report verify.Report) {
	h.t.Helper()
	err := operatorapi.VerifyAudit.Call(h.t.Context(), operatorapi.Dial(h.dir), operatorapi.VerifyRequest{Since: since},
		func() {}, func(v operatorapi.Verifying) error {
			if v.Report != nil {
				report = *v.Report
			}
			return nil
		})
	runtest.Must(h.t, err)
	return report
}

// checkAuditOfOperators calls each operation of the socket.
func (h *consoleHarness) checkAuditOfOperators(organization uuid.UUID, size int64, checkpoint []byte) {
	h.t.Helper()
	ctx, socket := h.t.Context(), operatorapi.Dial(h.dir)
	var states []auditstate.State
	runtest.Must(h.t, operatorapi.AuditStatus.Call(ctx, socket, operatorapi.AuditRequest{All: true}, func() {},
		func(s auditstate.State) error { states = append(states, s); return nil }))
	found := map[uuid.UUID]auditstate.State{}
	for _, s := range states {
		found[s.Organization] = s
	}
	own := found[organization]
	if own.Events < size || own.Name == "" || own.Checkpoint == nil || found[uuid.Nil].Events == 0 {
		h.t.Errorf("the states are %+v", states)
	}
	in := operatorapi.ProveRequest{Organization: organization.String(), Project: "default", Kind: prove.Source, ID: "a"}
	proofs := map[bool][]prove.File{}
	for salted, do := range map[bool]operatorapi.Stream[operatorapi.ProveRequest, prove.File]{
		false: operatorapi.Prove, true: operatorapi.ProveWithSalt,
	} {
		runtest.Must(h.t, do.Call(ctx, socket, in, func() {}, func(f prove.File) error {
			proofs[salted] = append(proofs[salted], f)
			return nil
		}))
	}
	if n := len(proofs[false]); n == 0 || n != len(proofs[true]) || proofs[false][0].Name == proofs[true][0].Name {
		h.t.Errorf("%d proofs, with the salt %d", n, len(proofs[true]))
	}
	in.ID = "none"
	err := operatorapi.Prove.Call(ctx, socket, in, func() {}, func(prove.File) error { return nil })
	if !errors.Is(err, operatorapi.ErrRefused) {
		h.t.Errorf("the proof of nothing: %v", err)
	}
	key, err := operatorapi.RotateAuditKey.Call(ctx, socket, operatorapi.AuditRequest{Organization: organization.String()})
	runtest.Must(h.t, err)
	runtest.Await(h.t, "the new key signs", func() bool {
		runtest.Must(h.t, h.audit.signer.Pass(ctx))
		tree, _, err := h.auditReads.trees.Tree(ctx, organization)
		runtest.Must(h.t, err)
		return len(tree.Verifiers) == 2 && tree.Verifiers[1] == key.Verifier
	})
	if report := h.verifiedAudit(checkpoint); report.Finding != nil {
		h.t.Errorf("since the checkpoint: %+v", report.Finding)
	}
	for _, of := range []operatorapi.AuditRequest{{Organization: organization.String()}, {Deployment: true}} {
		dir := filepath.Join(h.t.TempDir(), "bundle")
		to, err := auditfiles.NewFolder(dir)
		runtest.Must(h.t, err)
		bundle := operatorapi.AuditExport{AuditRequest: of, To: time.Now().Add(time.Hour)}
		runtest.Must(h.t, errors.Join(socket.ExportAudit(ctx, bundle, to), to.Close()))
		text, err := os.ReadFile(filepath.Join(dir, auditfiles.PolicyFile))
		runtest.Must(h.t, err)
		policy, err := proof.ParsePolicy(text)
		runtest.Must(h.t, err)
		runtest.Must(h.t, auditfiles.Check(policy, []string{dir}, nil, func(auditfiles.Found) {}))
	}
	unknown := operatorapi.AuditExport{AuditRequest: operatorapi.AuditRequest{Organization: "none"}}
	if err := socket.ExportAudit(ctx, unknown, nil); !errors.Is(err, operatorapi.ErrRefused) {
		h.t.Errorf("the bundle of no organization: %v", err)
	}
}

// checkAuditPages opens the pages as an auditor, who may verify, and as others.
func (h *consoleHarness) checkAuditPages(policy proof.Policy, send string) {
	h.t.Helper()
	const ok, log, project = http.StatusOK, "/settings/audit", "/p/default"
	h.get("auditor", log).want(h.t, ok, "Verify now", "log annals/", "Without a checkpoint").lacks(h.t, "The deployment")
	h.get("owner", log).want(h.t, ok, "The deployment") // an operator
	sent := h.submit("auditor", log+"/verify").want(h.t, http.StatusSeeOther)
	h.get("auditor", sent.Location).want(h.t, ok, "Nothing is wrong")
	h.submit("write", log+"/verify").want(h.t, http.StatusForbidden)
	proofs := project + "/proofs?kind=ingestion&id=" + send
	h.get("auditor", proofs).want(h.t, ok, ".tlog-proof")
	verifyProofs(h.t, policy, []byte(h.get("auditor", proofs+"&format=zip").Body))
	for _, none := range []string{"?kind=request&id=" + uuid.NewString(), "?kind=source&id=none", "?kind=x&id=y", ""} {
		h.get("auditor", project+"/proofs"+none).want(h.t, ok)
	}
	h.get("auditor", project+"/sends/"+send).want(h.t, ok, "kind=ingestion&amp;id="+send)
	h.get("read", project+"/sends/"+send).want(h.t, ok).lacks(h.t, "/proofs") // a member is shown none
}
