// Objects of the Prometheus operator and of cert-manager, as JSON on standard input, against their own schemas.
import fs from "node:fs";

const PACKAGES = {
  "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
  "cert-manager.io": "@kubernetes-models/cert-manager",
};
let wrong = 0;
for (const each of JSON.parse(fs.readFileSync(0))) {
  const [group, version] = each.apiVersion.split("/");
  const models = await import(`${PACKAGES[group]}/${group}/${version}`);
  try {
    new models[each.kind](each).validate();
    console.log(`ok ${each.kind}`);
  } catch (error) {
    wrong += 1;
    console.log(`${each.kind} ${each.metadata.name}: ${error.message}`);
  }
}
process.exit(wrong ? 1 : 0);
