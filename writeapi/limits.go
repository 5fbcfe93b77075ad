package writeapi

// The limits of what can be sent; lengths are in code points.
const (
	// maxContent is the most bytes of content in UTF-8, of one data point and of a whole batch.
	maxContent = 16 << 20
	// maxItems is the most items of a batch, and the most source ids of a bulk deletion.
	maxItems = 1000
	// maxMetadata is the most bytes of metadata, as JSON as sent.
	maxMetadata = 1 << 20
	maxSourceID = 1000
	maxLabel    = 1000
	// maxIdentity is also the most of an idempotency key.
	maxIdentity    = 200
	maxProjectName = 255
	maxKeyName     = 64

	// bulkDeleteBody holds 1,000 ids of 1,000 characters, each character escaped as a surrogate pair (12 bytes).
	bulkDeleteBody = 16 << 20
	// identityBody holds the traits of one put or patch, each byte as an escape of 6, and the keys of as many that it removes.
	identityBody = 6 << 20
	// bulkIdentityBody bounds the rows of one bulk write together.
	bulkIdentityBody = 16 << 20
	// audienceBody holds the biggest rule: 1,000 values of 2,000 characters, each escaped as a surrogate pair (12 bytes).
	audienceBody = 24 << 20
)
