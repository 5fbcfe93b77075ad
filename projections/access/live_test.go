package access_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/organization"
	"github.com/annals-project/annals/domain/stream"
)

func TestQuery_LiveKeys(t *testing.T) {
	w := &writer{}
	w.organization("org")
	w.project("org", "one", 1)
	w.key("one", "live")
	w.key("one", "revoked")
	w.key("one", "not asked for")
	w.revoke("one", "revoked")
	w.webhook("one", "hook")
	w.webhook("one", "rotated")
	w.rotateToken("one", "rotated", "new token")
	w.webhook("one", "deleted")
	w.deleteWebhook("one", "deleted")
	got, err := applied(t, w).LiveKeys(t.Context(), []uuid.UUID{
		id("live"), id("revoked"), id("unknown"), id("token of hook"), id("token of rotated"), id("new token"), id("token of deleted"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[uuid.UUID]struct{}{id("live"): {}, id("token of hook"): {}, id("new token"): {}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("live keys (-want +got):\n%s", diff)
	}
}

func TestQuery_OrganizationsInPreparation(t *testing.T) {
	w := &writer{}
	w.organization("preparing")
	w.organization("prepared")
	w.Append(stream.Name(stream.Organization, id("prepared")), &organization.Prepared{OrganizationID: id("prepared"), PreparedAt: noon})
	got, err := applied(t, w).Preparing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uuid.UUID{id("preparing")}, got); diff != "" {
		t.Errorf("preparing (-want +got):\n%s", diff)
	}
}
