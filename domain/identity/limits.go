package identity

import (
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
)

// traitBytes returns the size that limit.TraitBytes bounds.
func traitBytes(traits map[string]string) int {
	size := 0
	for key, value := range traits {
		size += len(key) + len(value)
	}
	return size
}

// CheckTraits returns the fault traits-invalid for traits beyond the limits, unless those of the
// record before the change were as many and as big.
func CheckTraits(before, traits map[string]string) error {
	if n, most := len(traits), max(limit.Traits, len(before)); n > most {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid,
			"traits: the identity would have %d: want at most %d", n, limit.Traits)
	}
	if size := traitBytes(traits); size > limit.TraitBytes && size > traitBytes(before) {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid,
			"traits: keys and values would have %d bytes together: want at most %d", size, limit.TraitBytes)
	}
	return nil
}

// CheckRemoved returns the fault traits-invalid for a patch that removes too many traits.
func CheckRemoved(count int) error {
	if count > limit.Traits {
		return fault.New(fault.Invalid, fault.CodeTraitsInvalid, "traits: %d are null: want at most %d", count, limit.Traits)
	}
	return nil
}

// CheckBulkTraits returns the fault bulk-invalid-rows for a bulk write with too many traits.
func CheckBulkTraits(count int) error {
	if count > limit.BulkTraits {
		return fault.New(fault.Invalid, fault.CodeBulkInvalidRows,
			"the rows have more than %d traits together: send them in several bulk writes", limit.BulkTraits)
	}
	return nil
}
