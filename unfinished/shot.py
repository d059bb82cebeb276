"""Take screenshots: shot.py FOLDER PAGE WIDTH light|dark OUT.png [full]; prints console errors and sideways scroll."""
import sys, shutil
from playwright.sync_api import sync_playwright
folder, page, width, theme, out = sys.argv[1:6]
full = len(sys.argv) > 6
with sync_playwright() as p:
    b = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-background-networking"])
    c = b.new_context(viewport={"width": int(width), "height": 900}, color_scheme=theme)
    t = c.new_page()
    t.on("console", lambda m: print("console:", m.type, m.text)) ; t.on("pageerror", lambda e: print("error:", e))
    t.goto(f"file://{folder}/{page}"); t.wait_for_timeout(400)
    print("scrollWidth", t.evaluate("document.documentElement.scrollWidth"), "height", t.evaluate("document.documentElement.scrollHeight"))
    t.screenshot(path=out, full_page=full)
    b.close()
