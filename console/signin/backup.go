package signin

import "github.com/annals-project/annals/internal/sealedtables"

// Tables are those that a backup holds, in the order in which they are restored. Sessions, known
// browsers, links and failures are not among them: a restore ends them.
func Tables() []sealedtables.Table {
	return []sealedtables.Table{
		{Key: "people", Name: "ops.signin_people"},
		{Key: "proofs", Name: "ops.signin_proofs"},
		{Key: "codes", Name: "ops.signin_recovery_codes"},
		{Key: "accounts", Name: "ops.signin_accounts"},
	}
}
