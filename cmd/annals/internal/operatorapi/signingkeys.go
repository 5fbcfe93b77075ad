package operatorapi

import (
	"net/http"

	"github.com/annals-project/annals/internal/tokens"
)

// RotateSigningKeys makes a key that signs tokens, and answers those that are left, the newest first.
var RotateSigningKeys = Operation[None, []tokens.Key]{http.MethodPost, "/operator/signing-keys/rotate"}
