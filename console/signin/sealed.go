package signin

import "github.com/annals-project/annals/internal/secret"

// SealedTables are the tables whose rows hold sealed values.
func SealedTables() []secret.Table {
	return []secret.Table{
		{
			Name: "ops.signin_people", Values: "second factors",
			Lost: "their people sign in with a recovery code, or after an Admin reset the second factor",
			ID:   "person_id", Key: "totp_key", Data: "totp",
		},
		{
			Name: "ops.signin_links", Values: "open links", Lost: "they no longer work: make new ones",
			ID: "encode(substr(token, 1, 16), 'hex')::uuid", Key: "payload_key", Data: "payload",
		},
	}
}
