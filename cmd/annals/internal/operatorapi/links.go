package operatorapi

import (
	"net/http"
	"time"
)

// LinkPerson makes a link that signs a person in once, with a new password.
var LinkPerson = Operation[PersonLinkRequest, PersonLink]{http.MethodPost, "/operator/people/link"}

// PersonLinkRequest names a person by the address. Somebody who is a member of nothing becomes the owner of the
// organization, if that has none.
type PersonLinkRequest struct {
	Target
	Email string `json:"email"`
}

// PersonLink is a link that works once.
type PersonLink struct {
	Link      string    `json:"link"`
	ExpiresAt time.Time `json:"expiresAt"`
}
