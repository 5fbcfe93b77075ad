// Package limit is the table of the limits of the contract: what one call may send or ask for, and
// how much a project may hold. docs/limits.md lists them, with the answer to a call that
// passes one.
//
// A name is the most of what it names. Lengths of texts are in Unicode code points, sizes whose
// name ends in Bytes or Body are in bytes.
package limit

// What a send and a deletion may hold.
const (
	// ContentBytes is that of one data point and of a whole batch, in UTF-8.
	ContentBytes = 16 << 20
	BatchItems   = 1000
	DeletionIDs  = 1000
	// MetadataBytes is that of the JSON as sent.
	MetadataBytes  = 1 << 20
	SourceID       = 1000
	Label          = 1000
	IdempotencyKey = 200
)

// The bodies of requests; those of an ingest and of small requests are in internal/httpx.
const (
	// BulkDeletionBody holds DeletionIDs ids, each character escaped as a surrogate pair (12 bytes).
	BulkDeletionBody = 16 << 20
	// IdentityBody holds the traits of one put or patch, each byte escaped (6 bytes), and the keys of
	// as many that it removes.
	IdentityBody = 6 << 20
	// BulkIdentityBody holds all rows of one bulk write.
	BulkIdentityBody = 16 << 20
	// AudienceBody holds the biggest rule: RuleConditions with RuleValues values, each character
	// escaped as a surrogate pair.
	AudienceBody = 24 << 20
)

// What an estimate takes and shows.
const (
	EstimateFiles = 10_000
	// EstimateFileBytes is that of one file in UTF-8; a longer one is skipped.
	EstimateFileBytes = 16 << 20
	// EstimateBody holds all files or items of a request.
	EstimateBody = 256 << 20
	// EstimatePath is the length of the path of a file.
	EstimatePath = 1000
	// EstimatePoints is how many data points a request becomes. The files beyond them are skipped.
	EstimatePoints = 1_000_000
	// EstimateKept is what is kept of a request besides its contents, in bytes. The files beyond it are skipped.
	EstimateKept = 64 << 20
	// EstimateMade is the size of all data points of a request, with their ids, labels and metadata. The files
	// beyond it are skipped.
	EstimateMade = 2 << 30
	// EstimateFull is the same of the data points that an answer returns in full.
	EstimateFull = 512 << 20
	// EstimateRows is how many data points a summary shows, EstimatePreview how much of each.
	EstimateRows    = 1000
	EstimatePreview = 160
	// EstimateBatch and EstimateBatchBytes bound a batch.
	EstimateBatch      = 500
	EstimateBatchBytes = 8 << 20
)

// What a name may hold.
const (
	OrganizationName = 255
	ProjectName      = 255
	ProjectText      = 1000
	KeyName          = 64
)

// MemberProjects is how many projects a member without the role owner or admin has access to, OrganizationAgents how
// many agents the members of an organization approve.
const (
	MemberProjects     = 1000
	OrganizationAgents = 10_000
)

// What a recall may ask for.
const (
	RecallResults = 200
	// EvidenceTokens is the most of an evidence budget. A plan may lower it.
	EvidenceTokens = 32_000
	// RequestPage is a page of the request log.
	RequestPage = 100
)

// ExplainedItems is how many items of a send explain lists. It counts the others.
const ExplainedItems = 100

// What a trace answers.
const (
	// TraceRoots is that of a page of each group, TraceNodes that of a lineage and of a timeline.
	TraceRoots = 50
	TraceNodes = 400
	// TraceContent is the most of the content of a source that a node shows.
	TraceContent = 4000
	// TraceDays is the widest window of a timeline.
	TraceDays = 31
)

// The identity directory. A record that was stored beyond these limits stays as it is, and can be
// made smaller.
const (
	Identity   = 200
	TraitKey   = 200
	TraitValue = 2000
	// Traits is also the most that one patch removes.
	Traits = 1000
	// TraitBytes is that of the keys and values of a record together, in UTF-8.
	TraitBytes = 512 << 10
	BulkRows   = 1000
	// BulkTraits is that of all rows of a bulk write together.
	BulkTraits   = 100_000
	IdentityPage = 1000
	// IdentityFile is the size of a CSV file of identities in bytes, IdentityFileRows how many it has.
	IdentityFile     = 1 << 20
	IdentityFileRows = 20_000
)

// Audiences. Those that were stored beyond these limits stay as they are, and can be replaced by
// ones that are not bigger.
const (
	MinAudienceSlug = 2
	AudienceSlug    = 40
	AudienceName    = 200
	Audiences       = 1000
	// AudienceMembers is that of one fixed audience.
	AudienceMembers = 100_000
	// AudienceBytes is that of all definitions of a project together.
	AudienceBytes  = 32 << 20
	RuleConditions = 20
	RuleValues     = 50
)

// Read records of a project: how many days they may be kept, and are unless somebody sets it.
const (
	LeastReadDays = 30
	MostReadDays  = 3650
	ReadDays      = 365
)

// Webhooks.
const (
	Webhooks       = 20 // of a project
	WebhookName    = 64
	WebhookFilters = 20
	// WebhookFilterValues is that of one filter with several values.
	WebhookFilterValues = 50
	// WebhookFilterBytes is that of the values of all filters of a webhook together, in UTF-8.
	WebhookFilterBytes = 64 << 10
	// WebhookPath is that of a path in the settings, WebhookID that of an id that a path leads to.
	WebhookPath = 500
	WebhookID   = 200
	// WebhookBody is that of an event, in bytes.
	WebhookBody = 1 << 20
	// WebhookEvents is that of one webhook in a minute.
	WebhookEvents = 600
)

// IsAudienceSlug reports whether a text can name an audience: MinAudienceSlug to AudienceSlug lower-case letters,
// digits and dashes, with a letter or digit at each end.
func IsAudienceSlug(slug string) bool {
	if len(slug) < MinAudienceSlug || len(slug) > AudienceSlug {
		return false
	}
	for i := range len(slug) {
		switch c := slug[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-' && i > 0 && i < len(slug)-1:
		default:
			return false
		}
	}
	return true
}
