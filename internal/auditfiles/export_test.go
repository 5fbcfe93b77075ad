package auditfiles

import (
	"io/fs"

	"github.com/annals-project/annals/domain/audit/proof"
)

// CheckFiles checks the files of a folder.
func CheckFiles(policy proof.Policy, files fs.FS, report func(Found)) error {
	return checkSources(policy, []source{{files: files}}, nil, report)
}
